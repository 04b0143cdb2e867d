// The ranks of a node as one of them sees them: waking each other, waiting for
// each other, and agreeing that it is over.
//
// What: `Run` repeats a step until it is done and sleeps where it is stuck. It
//   ends by an error on every rank when a peer ends, leaves, or is not heard of
//   for the timeout.
// Ownership: owns the membership.
// Threads: one, but for `Break`.
// Failures: Error(kUnavailable), with the words of the rank that noticed first.
#ifndef MUONSTORE_SRC_COMM_SHARED_NODE_H_
#define MUONSTORE_SRC_COMM_SHARED_NODE_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/comm/call_record.h"
#include "src/comm/shared/control_block.h"
#include "src/comm/shared/rendezvous.h"

namespace muonstore::comm {

enum class StepResult { kDone, kMoved, kStuck };

// Work in steps that do not block.
class Steps {
 public:
  virtual ~Steps() = default;
  virtual StepResult Step() = 0;
  // The ranks that a stuck step waits for.
  virtual std::vector<int32_t> Blockers() const = 0;
};

class Node {
 public:
  explicit Node(Membership membership);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  // Tells the peers that this rank has left.
  ~Node();

  int32_t rank() const { return membership_.rank; }
  int32_t size() const { return membership_.size; }
  const Membership& membership() const { return membership_; }
  const ControlBlock& control() const { return control_; }

  // Says which call comes next, waits until all have said so, and compares.
  void BeginCall(const CallRecord& record);
  void Run(Steps& steps);
  // Wakes `peer`, for which something was done.
  void Ring(int32_t peer) const;
  // Breaks the communicator on all ranks. The first reason counts. Any thread.
  void Break(std::string_view reason) const;
  // The same, and throws.
  [[noreturn]] void Fail(std::string_view reason) const;

 private:
  class Wait;

  std::string Name(int32_t peer) const;
  std::string CallName() const;
  void ThrowIfFailed() const;
  void FailForSilence(const Wait& wait,
                      const std::vector<int32_t>& blockers) const;
  [[noreturn]] void ThrowFailure() const;
  void RequireAlive(Steps& steps, StepResult& result) const;

  Membership membership_;
  ControlBlock control_;
  int owner_pid_;
  uint64_t call_number_ = 0;
  CallKind call_kind_ = CallKind::kBarrier;
};

}  // namespace muonstore::comm

#endif  // MUONSTORE_SRC_COMM_SHARED_NODE_H_
