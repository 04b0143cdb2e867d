#include "tests/testutil/fault_tier.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "muonstore/error.h"

namespace muonstore::testutil {
namespace {

constexpr uint64_t kAlignment = 4096;

uint64_t RoundUp(uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// An operation that was started. The script's mutex guards it.
struct Operation {
  TierOperation what;
  std::span<std::byte> place;  // In the arena.
  std::span<std::byte> out;
  std::span<const std::byte> data;
  bool fails = false;
  bool waited_for = false;
  bool done = false;
};

bool Overlap(const Operation& a, const Operation& b) {
  return a.place.data() < b.place.data() + b.place.size() &&
         b.place.data() < a.place.data() + a.place.size() &&
         (a.what.is_write || b.what.is_write);
}

void Do(Operation& operation) {
  const size_t size =
      operation.fails ? operation.place.size() / 2 : operation.place.size();
  if (size == 0) return;
  if (operation.what.is_write) {
    std::memcpy(operation.place.data(), operation.data.data(), size);
  } else {
    std::memcpy(operation.out.data(), operation.place.data(), size);
  }
}

}  // namespace

class FaultTier::Script {
 public:
  explicit Script(const FaultTierOptions& options)
      : options_(options), random_(options.seed) {}

  std::shared_ptr<Operation> Start(Operation operation) {
    const std::lock_guard lock(mutex_);
    ++(operation.what.is_write ? counts_.writes : counts_.reads);
    operation.what.number = next_number_++;
    operation.fails = fails_ != nullptr && fails_(operation.what);
    for (const auto& other : under_way_) {
      counts_.races += Overlap(operation, *other) ? 1 : 0;
    }
    under_way_.push_back(std::make_shared<Operation>(std::move(operation)));
    return under_way_.back();
  }

  void Finish(const std::shared_ptr<Operation>& operation) {
    std::function<void(const TierOperation&)> callback;
    {
      const std::lock_guard lock(mutex_);
      if (!std::exchange(operation->waited_for, true)) callback = callback_;
    }
    if (callback != nullptr) callback(operation->what);
    const std::lock_guard lock(mutex_);
    if (!options_.reorder) {
      Complete(operation);
      return;
    }
    // Others that were started before or after may well be done first.
    std::vector<std::shared_ptr<Operation>> order = under_way_;
    std::shuffle(order.begin(), order.end(), random_);
    for (const auto& other : order) {
      Complete(other);
      if (other == operation) return;
    }
  }

  bool IsDone(const Operation& operation) const {
    const std::lock_guard lock(mutex_);
    return operation.done;
  }

  void FailWhere(std::function<bool(const TierOperation&)> fails) {
    const std::lock_guard lock(mutex_);
    fails_ = std::move(fails);
  }
  void OnOperation(std::function<void(const TierOperation&)> callback) {
    const std::lock_guard lock(mutex_);
    callback_ = std::move(callback);
  }
  TierCounts counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  void Complete(const std::shared_ptr<Operation>& operation) {
    if (operation->done) return;
    Do(*operation);
    operation->done = true;
    std::erase(under_way_, operation);
  }

  const FaultTierOptions options_;
  mutable std::mutex mutex_;
  std::mt19937_64 random_;
  TierCounts counts_;
  int64_t next_number_ = 0;
  std::vector<std::shared_ptr<Operation>> under_way_;
  std::function<bool(const TierOperation&)> fails_;
  std::function<void(const TierOperation&)> callback_;
};

namespace {

class OperationPending : public Pending {
 public:
  OperationPending(std::shared_ptr<FaultTier::Script> script,
                   std::shared_ptr<Operation> operation)
      : script_(std::move(script)), operation_(std::move(operation)) {}
  ~OperationPending() override { script_->Finish(operation_); }

  void Wait() override {
    script_->Finish(operation_);
    if (!operation_->fails) return;
    throw Error(ErrorCode::kUnavailable,
                operation_->what.is_write ? "injected write fault"
                                          : "injected read fault",
                {.file = operation_->what.arena});
  }
  bool done() const override { return script_->IsDone(*operation_); }

 private:
  std::shared_ptr<FaultTier::Script> script_;
  std::shared_ptr<Operation> operation_;
};

class FaultArena : public Arena {
 public:
  FaultArena(const ArenaOptions& options,
             std::shared_ptr<FaultTier::Script> script)
      : options_(options), script_(std::move(script)) {
    for (const uint64_t bytes : options_.block_bytes) {
      for (int32_t slot = 0; slot < options_.num_slots; ++slot) {
        slots_.emplace_back(bytes);
      }
    }
  }

  std::string_view name() const override { return options_.name; }
  std::span<std::byte> memory(int32_t, int32_t) override { return {}; }
  std::span<std::byte> all_memory() override { return {}; }

  PendingPtr Read(const BlockRange& from, std::span<std::byte> out) override {
    return Start({.what = What(false, from, out.size()),
                  .place = Place(from, out.size()),
                  .out = out});
  }
  PendingPtr Write(const BlockRange& to,
                   std::span<const std::byte> data) override {
    return Start({.what = What(true, to, data.size()),
                  .place = Place(to, data.size()),
                  .data = data});
  }
  const PinReport& pin_report() const override { return report_; }

 private:
  TierOperation What(bool is_write, const BlockRange& range,
                     size_t size) const {
    return {.is_write = is_write,
            .arena = options_.name,
            .range = range,
            .size_bytes = size};
  }

  std::span<std::byte> Place(const BlockRange& range, size_t size) {
    const auto at =
        static_cast<size_t>(range.block * options_.num_slots + range.slot);
    if (range.slot < 0 || range.slot >= options_.num_slots ||
        at >= slots_.size() || range.offset_bytes + size > slots_[at].size()) {
      throw Error(ErrorCode::kInvalidArgument, "no such range",
                  {.file = options_.name});
    }
    return std::span(slots_[at]).subspan(range.offset_bytes, size);
  }

  PendingPtr Start(Operation operation) {
    return std::make_unique<OperationPending>(
        script_, script_->Start(std::move(operation)));
  }

  const ArenaOptions options_;
  std::shared_ptr<FaultTier::Script> script_;
  std::vector<std::vector<std::byte>> slots_;
  PinReport report_;
};

}  // namespace

FaultTier::FaultTier(const FaultTierOptions& options)
    : script_(std::make_shared<Script>(options)),
      available_bytes_(options.available_bytes) {}

std::unique_ptr<Arena> FaultTier::CreateArena(const ArenaOptions& options) {
  if (refuses_arenas_) {
    throw Error(ErrorCode::kResourceExhausted, "injected: no room");
  }
  return std::make_unique<FaultArena>(options, script_);
}

uint64_t FaultTier::ArenaBytes(const ArenaOptions& options) const {
  uint64_t total = 0;
  for (const uint64_t bytes : options.block_bytes) {
    total += RoundUp(bytes) * static_cast<uint64_t>(options.num_slots);
  }
  return total;
}

void FaultTier::FailWhere(std::function<bool(const TierOperation&)> fails) {
  script_->FailWhere(std::move(fails));
}

void FaultTier::OnOperation(
    std::function<void(const TierOperation&)> callback) {
  script_->OnOperation(std::move(callback));
}

TierCounts FaultTier::counts() const { return script_->counts(); }

}  // namespace muonstore::testutil
