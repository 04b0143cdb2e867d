// The memory through which the ranks of a node talk: who is in which call, a
// channel from each rank to each other one, and why it broke.
//
// What: one block for all, laid out by the number of ranks. All-zero memory is
//   its initial state.
// Ownership: a view; the memory is the caller's.
// Threads: each field says who writes it; the atomics order the rest.
#ifndef MUONSTORE_SRC_COMM_SHARED_CONTROL_BLOCK_H_
#define MUONSTORE_SRC_COMM_SHARED_CONTROL_BLOCK_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace muonstore::comm {

// What one message with descriptors can carry, with room to spare.
constexpr int32_t kMaxRanksOfNode = 128;
constexpr size_t kCacheLine = 64;
constexpr uint32_t kRingLength = 64;
constexpr uint32_t kBounceChunks = 4;
constexpr int32_t kBounceArena = -1;

struct RankState {
  // Counts what others did for this rank, who sleeps on it.
  alignas(kCacheLine) std::atomic<uint32_t> bell;
  // By the owner: somebody must be woken.
  std::atomic<uint32_t> asleep;
  // By the owner: it is in a call and alive.
  alignas(kCacheLine) std::atomic<uint32_t> heartbeat;
  // By the owner: it closed its communicator in good order.
  std::atomic<uint32_t> left;
  // By the owner: number of calls whose records are written.
  std::atomic<uint64_t> announced;
};

// Bytes that the receiver may copy: from a published arena of the sender, or
// from the channel's bounce memory.
struct Descriptor {
  int32_t arena;
  uint32_t size_bytes;
  uint64_t offset_bytes;
};

// Single producer, single consumer.
struct Channel {
  // By the sender: descriptors written so far.
  alignas(kCacheLine) std::atomic<uint32_t> pushed;
  // By the receiver: descriptors copied so far.
  alignas(kCacheLine) std::atomic<uint32_t> popped;
  alignas(kCacheLine) std::array<Descriptor, kRingLength> ring;
};

// Why the communicator is broken: the first rank to notice says so.
struct Failure {
  static constexpr uint32_t kNone = 0;
  static constexpr uint32_t kWriting = 1;
  static constexpr uint32_t kWritten = 2;

  std::atomic<uint32_t> stage;
  std::array<char, 508> text;
};

class ControlBlock {
 public:
  static uint64_t SizeBytes(int32_t num_ranks);

  ControlBlock(std::span<std::byte> memory, int32_t num_ranks);

  RankState& rank(int32_t rank) const;
  Failure& failure() const;
  Channel& channel(int32_t from, int32_t to) const;
  // kBounceChunks chunks of equal size.
  std::span<std::byte> bounce(int32_t from, int32_t to) const;
  // Where `rank` writes the record of call `number`: two take turns, since a
  // rank writes the next one while others may still read this one.
  std::span<uint64_t> record(int32_t rank, uint64_t number) const;

 private:
  size_t Pair(int32_t from, int32_t to) const;

  std::span<std::byte> memory_;
  int32_t num_ranks_;
};

}  // namespace muonstore::comm

#endif  // MUONSTORE_SRC_COMM_SHARED_CONTROL_BLOCK_H_
