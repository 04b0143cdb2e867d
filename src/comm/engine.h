// What an implementation of a communicator does, one call at a time.
//
// What: the blocking half of include/muonstore/communicator.h.
//   OrderedCommunicator calls it from a thread of its own, in order, with
//   arguments that it has checked.
// Threads: one, but for `Abort`, which comes from any other at any time.
// Failures: Error(kInvalidArgument) before anything was said to a peer; after
//   any other Error the engine is not called again.
#ifndef MUONSTORE_SRC_COMM_ENGINE_H_
#define MUONSTORE_SRC_COMM_ENGINE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "muonstore/communicator.h"

namespace muonstore::comm {

class Engine {
 public:
  virtual ~Engine() = default;
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  virtual std::string_view name() const = 0;
  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;

  virtual void Exchange(const ExchangePlan& plan) = 0;
  virtual void AllReduce(std::span<int64_t> values, ReduceOp op) = 0;
  virtual void Broadcast(std::span<std::byte> data, int32_t root) = 0;
  virtual void Barrier() = 0;
  virtual void Publish(Arena& arena) = 0;
  virtual void Withdraw(Arena& arena) = 0;
  virtual std::unique_ptr<Engine> Duplicate() = 0;
  // Every call under way and to come fails with AbortText(rank, reason), on all
  // ranks.
  virtual void Abort(std::string_view reason) = 0;
};

// What an abort says on all ranks.
std::string AbortText(int32_t rank, std::string_view reason);

// Throws Error(kInvalidArgument) for a timeout that is not positive or beyond
// kMaxCommunicatorTimeout.
void RequireTimeout(std::chrono::milliseconds timeout);

// The communicator that runs `engine` on a thread.
std::unique_ptr<Communicator> MakeOrderedCommunicator(
    std::unique_ptr<Engine> engine);

}  // namespace muonstore::comm

#endif  // MUONSTORE_SRC_COMM_ENGINE_H_
