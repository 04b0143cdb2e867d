#include "src/comm/shared/control_block.h"

#include <algorithm>

#include "src/comm/call_record.h"

namespace muonstore::comm {
namespace {

static_assert(std::atomic<uint64_t>::is_always_lock_free);

constexpr uint64_t kPage = 4096;

uint64_t RoundUp(uint64_t bytes, uint64_t to) {
  return (bytes + to - 1) / to * to;
}

// What all channels of a node take together at most; near the cache's size a
// channel, where there are few.
constexpr uint64_t kBounceBytesOfNode = uint64_t{64} << 20;
constexpr uint64_t kMaxChunkBytes = uint64_t{128} << 10;

uint64_t ChunkBytes(uint64_t num_ranks) {
  const uint64_t share =
      kBounceBytesOfNode / (num_ranks * num_ranks * kBounceChunks);
  return std::clamp(share / kPage * kPage, kPage, kMaxChunkBytes);
}

struct Offsets {
  uint64_t failure;
  uint64_t channels;
  uint64_t records;
  uint64_t record_bytes;
  uint64_t bounce;
  uint64_t bounce_bytes;
  uint64_t end;
};

// [ranks][failure][channels][records][bounce memory].
Offsets OffsetsFor(int32_t num_ranks) {
  const auto ranks = static_cast<uint64_t>(num_ranks);
  Offsets offsets{};
  offsets.failure = ranks * sizeof(RankState);
  offsets.channels = offsets.failure + RoundUp(sizeof(Failure), kCacheLine);
  offsets.records = offsets.channels + ranks * ranks * sizeof(Channel);
  offsets.record_bytes =
      RoundUp(CallRecord::LengthFor(num_ranks) * sizeof(uint64_t), kCacheLine);
  offsets.bounce =
      RoundUp(offsets.records + 2 * ranks * offsets.record_bytes, kPage);
  offsets.bounce_bytes = kBounceChunks * ChunkBytes(ranks);
  offsets.end = offsets.bounce + ranks * ranks * offsets.bounce_bytes;
  return offsets;
}

template <typename T>
T& At(std::span<std::byte> memory, uint64_t offset) {
  return *reinterpret_cast<T*>(memory.data() + offset);
}

}  // namespace

uint64_t ControlBlock::SizeBytes(int32_t num_ranks) {
  return OffsetsFor(num_ranks).end;
}

ControlBlock::ControlBlock(std::span<std::byte> memory, int32_t num_ranks)
    : memory_(memory), num_ranks_(num_ranks) {}

RankState& ControlBlock::rank(int32_t rank) const {
  return At<RankState>(memory_, static_cast<size_t>(rank) * sizeof(RankState));
}

Failure& ControlBlock::failure() const {
  return At<Failure>(memory_, OffsetsFor(num_ranks_).failure);
}

size_t ControlBlock::Pair(int32_t from, int32_t to) const {
  return static_cast<size_t>(from) * static_cast<size_t>(num_ranks_) +
         static_cast<size_t>(to);
}

Channel& ControlBlock::channel(int32_t from, int32_t to) const {
  return At<Channel>(memory_, OffsetsFor(num_ranks_).channels +
                                  Pair(from, to) * sizeof(Channel));
}

std::span<std::byte> ControlBlock::bounce(int32_t from, int32_t to) const {
  const Offsets offsets = OffsetsFor(num_ranks_);
  return memory_.subspan(offsets.bounce + Pair(from, to) * offsets.bounce_bytes,
                         offsets.bounce_bytes);
}

std::span<uint64_t> ControlBlock::record(int32_t rank, uint64_t number) const {
  const Offsets offsets = OffsetsFor(num_ranks_);
  const uint64_t index = 2 * static_cast<uint64_t>(rank) + number % 2;
  return {
      &At<uint64_t>(memory_, offsets.records + index * offsets.record_bytes),
      CallRecord::LengthFor(num_ranks_)};
}

}  // namespace muonstore::comm
