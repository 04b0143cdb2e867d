// How ranks talk: one collective exchange of memory ranges, and small
// collectives.
//
// What: `Exchange` moves bytes between ranks by a plan that each rank gives for
//   its own side. Everything that moves state between ranks is an exchange.
// Ownership: memory in a plan belongs to the caller, who keeps it alive and
//   leaves it unchanged until the handle's Wait has returned.
// Threads: the calls of one communicator come from one thread, in the same
//   order on every rank; `Duplicate` gives a second one for another thread.
//   `Abort` and `received_bytes` may be called from any thread.
// Failures: Error(kUnavailable) on every rank within the timeout when a peer
//   died, hung or disagrees about the call; the communicator is then broken and
//   every later call throws the same. Error(kInvalidArgument) for arguments
//   that make no sense on this rank: that call was not made, and may be
//   corrected while the peers wait.

#ifndef MUONSTORE_COMMUNICATOR_H_
#define MUONSTORE_COMMUNICATOR_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muonstore/pending.h"

namespace muonstore {

class Arena;

struct SendPiece {
  int32_t peer = 0;
  std::span<const std::byte> data;
};

struct ReceivePiece {
  int32_t peer = 0;
  std::span<std::byte> data;
};

// The pieces that a rank sends to a peer, put one behind the other, fill the
// pieces that the peer receives from it, in order; the cuts may differ, the
// sums must agree. A rank may be its own peer.
struct ExchangePlan {
  std::vector<SendPiece> sends;
  std::vector<ReceivePiece> receives;
};

enum class ReduceOp { kSum, kMin, kMax, kBitOr };

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // "single", "shared memory", "c10d", "hierarchical".
  virtual std::string_view name() const = 0;
  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;

  // Collective. Exchanges complete in the order in which they were started;
  // several may be under way. Wait returns once all receives are filled and all
  // sends are read.
  virtual PendingPtr Exchange(const ExchangePlan& plan) = 0;
  // Collective. Sums wrap around. values.size() agrees on all ranks.
  virtual void AllReduce(std::span<int64_t> values, ReduceOp op) = 0;
  // Collective. data.size() agrees on all ranks.
  virtual void Broadcast(std::span<std::byte> data, int32_t root) = 0;
  // Collective.
  virtual void Barrier() = 0;

  // Collective: lets peers on this node read the arena's memory in place, where
  // the communicator and the arena can; otherwise sends of it are copied. The
  // arena outlives the communicator, or is withdrawn before it goes. Each rank
  // gives its own; a duplicate does not know the arenas of its original.
  virtual void Publish(Arena& arena) = 0;
  virtual void Withdraw(Arena& arena) = 0;

  // Not collective: this rank cannot go on. The peers' pending and later calls,
  // and this rank's own, throw Error(kUnavailable) with its number and
  // `reason`, without waiting for the timeout; an exchange of which all bytes
  // have come may still succeed. The first reason counts, on a broken
  // communicator an earlier one. Duplicates are not affected. Does not wait
  // for peers.
  virtual void Abort(std::string_view reason) noexcept = 0;

  // Collective: an independent communicator over the same ranks.
  virtual std::unique_ptr<Communicator> Duplicate() = 0;

  // Bytes that exchanges brought to this rank from other ranks so far. Any
  // thread.
  virtual uint64_t received_bytes() const = 0;
};

// Longer timeouts are refused: clocks count nanoseconds. "For ever" is this.
inline constexpr std::chrono::milliseconds kMaxCommunicatorTimeout =
    std::chrono::hours(24 * 365);

std::unique_ptr<Communicator> MakeSingleCommunicator();

struct SharedMemoryOptions {
  int32_t rank = 0;
  int32_t size = 1;
  // Where the ranks of this node meet: any text of up to 80 bytes that they
  // agree upon and no other job of this user uses. An abstract Unix socket:
  // nothing appears in a file system.
  std::string rendezvous;
  // A peer that does not arrive or answer within this time is an error. At
  // most kMaxCommunicatorTimeout.
  std::chrono::milliseconds timeout{60'000};
};

// Processes of one node, or threads of one process. Collective: returns when
// all have come.
std::unique_ptr<Communicator> ConnectSharedMemory(
    const SharedMemoryOptions& options);

// Nodes of equal rules: `inside` joins the ranks of this node, `across` all
// ranks. Bytes for a peer on the same node go through `inside`, the others
// through `across`. Takes both.
std::unique_ptr<Communicator> MakeHierarchicalCommunicator(
    std::unique_ptr<Communicator> inside, std::unique_ptr<Communicator> across);

}  // namespace muonstore

#endif  // MUONSTORE_COMMUNICATOR_H_
