#include "src/executor/stage_stream.h"

#include <utility>

#include "muonstore/error.h"
#include "src/executor/stopwatch.h"

namespace muonstore {

StageStream::Held::Held(BufferPool& pool, int32_t buffer,
                        std::unique_ptr<Stage> stage)
    : pool_(pool), buffer_(buffer), stage_(std::move(stage)) {}

StageStream::Held::~Held() {
  stage_.reset();  // Waits for what is under way in the buffer.
  if (buffer_ >= 0) pool_.Return(buffer_);
}

StageStream::StageStream(const StageContext& context,
                         std::span<const StagedKind> kinds,
                         std::vector<const Unit*> units)
    : context_(context), kinds_(kinds), units_(std::move(units)) {}

StageStream::~StageStream() = default;

bool StageStream::NeedsBuffer(const Unit& unit) const {
  return StagedBytes(context_.store, kinds_, unit) > 0;
}

void StageStream::StartNext() {
  const Unit& unit = *units_[next_];
  int32_t buffer = -1;
  std::span<std::byte> bytes;
  if (NeedsBuffer(unit)) {
    buffer = context_.pool.Acquire();
    bytes = context_.pool.bytes(buffer);
  }
  loading_.push_back(std::make_unique<Held>(
      context_.pool, buffer,
      std::make_unique<Stage>(context_.store, unit, kinds_, bytes)));
  ++next_;
  context_.counts.read_bytes += loading_.back()->stage().Load();
}

bool StageStream::HasRoom() {
  if (!loading_.empty()) return true;
  if (next_ == units_.size()) return false;
  if (!NeedsBuffer(*units_[next_])) return true;
  while (context_.pool.num_free() == 0 && !storing_.empty()) FinishOldest();
  return context_.pool.num_free() > 0;
}

std::unique_ptr<StageStream::Held> StageStream::Next() {
  if (!HasRoom()) {
    throw Error(ErrorCode::kInternal, "no staging buffer is free");
  }
  if (loading_.empty()) StartNext();
  std::unique_ptr<Held> held = std::move(loading_.front());
  loading_.pop_front();
  {
    const Stopwatch watch(context_.counts.wait_s);
    held->stage().WaitLoaded();
  }
  // State in memory is at hand: only reads are worth starting early.
  if (context_.mode == SwapMode::kPipelined && next_ < units_.size() &&
      NeedsBuffer(*units_[next_]) && context_.pool.num_free() > 0) {
    StartNext();
  }
  return held;
}

void StageStream::Finish(std::unique_ptr<Held> held) {
  if (!held->has_buffer()) return;  // All of it is where it belongs.
  context_.counts.written_bytes += held->stage().Store();
  storing_.push_back(std::move(held));
  if (context_.mode == SwapMode::kPartitioned) Drain();
}

void StageStream::FinishOldest() {
  const Stopwatch watch(context_.counts.wait_s);
  storing_.front()->stage().WaitStored();
  storing_.pop_front();
}

void StageStream::Drain() {
  while (!storing_.empty()) FinishOldest();
}

void ForEachStage(const StageContext& context,
                  std::span<const StagedKind> kinds,
                  std::span<const Unit> units,
                  const std::function<void(Stage&, const Unit&)>& body) {
  std::vector<const Unit*> order;
  for (const Unit& unit : units) order.push_back(&unit);
  StageStream stream(context, kinds, std::move(order));
  for (const Unit& unit : units) {
    std::unique_ptr<StageStream::Held> held = stream.Next();
    body(held->stage(), unit);
    stream.Finish(std::move(held));
  }
  stream.Drain();
}

}  // namespace muonstore
