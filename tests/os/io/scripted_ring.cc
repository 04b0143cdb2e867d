#include "tests/os/io/scripted_ring.h"

#include <algorithm>

namespace muonstore::os {
namespace {

int Next(std::deque<int>& values) {
  if (values.empty()) return 0;
  const int value = values.front();
  values.pop_front();
  return value;
}

}  // namespace

void RingScript::Release(size_t count) {
  const std::lock_guard lock(mutex_);
  num_released_ += count;
  changed_.notify_all();
}

void RingScript::WaitUntilSubmitted(size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return requests_.size() >= count; });
}

std::vector<RingEntry> RingScript::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

size_t RingScript::max_under_way() const {
  const std::lock_guard lock(mutex_);
  return max_under_way_;
}

class ScriptedRing final : public Ring {
 public:
  ScriptedRing(std::shared_ptr<RingScript> script, int num_buffers)
      : script_(std::move(script)), num_buffers_(num_buffers) {}

  std::string_view name() const override { return "scripted"; }

  void Queue(const RingEntry& entry) override {
    const std::lock_guard lock(script_->mutex_);
    script_->queued_.push_back(entry);
  }

  int Submit() override {
    const std::lock_guard lock(script_->mutex_);
    const int error = Next(script_->submits);
    if (error != 0) return error;
    for (const RingEntry& entry : script_->queued_) {
      script_->requests_.push_back(entry);
      script_->under_way_.push_back(entry);
    }
    script_->queued_.clear();
    script_->max_under_way_ =
        std::max(script_->max_under_way_, script_->under_way_.size());
    script_->changed_.notify_all();
    return 0;
  }

  int Wait(std::span<RingCompletion> out) override {
    std::unique_lock lock(script_->mutex_);
    script_->changed_.wait(lock, [this] {
      return script_->wakes_ || !script_->waits.empty() ||
             (!script_->under_way_.empty() &&
              (!script_->holds_ || script_->num_released_ > 0));
    });
    const int error = Next(script_->waits);
    if (error != 0) return -error;
    if (std::exchange(script_->wakes_, false)) {
      out[0] = {.id = kWakeId};
      return 1;
    }
    const RingEntry entry = script_->under_way_.front();
    script_->under_way_.pop_front();
    if (script_->holds_) --script_->num_released_;
    out[0] = {.id = entry.id,
              .result = script_->result
                            ? script_->result(entry)
                            : static_cast<int32_t>(entry.size_bytes)};
    return 1;
  }

  int Wake() override {
    const std::lock_guard lock(script_->mutex_);
    script_->wakes_ = true;
    script_->changed_.notify_all();
    return 0;
  }

  int num_buffers() const override { return num_buffers_; }
  int RegisterBuffer(int /*buffer*/, std::span<std::byte> memory) override {
    const std::lock_guard lock(script_->mutex_);
    return memory.empty() ? 0 : Next(script_->registers);
  }

 private:
  std::shared_ptr<RingScript> script_;
  int num_buffers_;
};

std::unique_ptr<Ring> MakeScriptedRing(std::shared_ptr<RingScript> script,
                                       int num_buffers) {
  return std::make_unique<ScriptedRing>(std::move(script), num_buffers);
}

}  // namespace muonstore::os
