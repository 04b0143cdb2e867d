// A communicator over a process group that PyTorch made.
//
// What: gloo over a network, or whatever backend the caller's group has for CPU
//   tensors; a group without one (NCCL alone) is used through its device, at
//   the cost of a copy there and back. Between the ranks of a node shared
//   memory is faster: see MakeHierarchicalCommunicator.
// Ownership: shares the group. While the communicator lives, nobody else calls
//   the group: collectives are matched by their order. `Duplicate` splits the
//   group.
// Threads: as every communicator's.
// Failures: as every communicator's. A rank that dies or hangs is noticed as
//   the backend notices it, by its connection or by the timeout. `Abort` leaves
//   word in the group's store, at which waiting ranks look 20 times a second;
//   without a store, and where the group is used through its device, peers hear
//   of it by the timeout. What the backend was doing when a rank aborted it
//   goes on doing until the timeout, and destroying the group waits for it; the
//   group is of no more use.

#ifndef MUONSTORE_C10D_H_
#define MUONSTORE_C10D_H_

#include <chrono>
#include <memory>

#include <c10/util/intrusive_ptr.h>

#include "muonstore/communicator.h"

namespace c10d {
class ProcessGroup;
}

namespace muonstore {

struct C10dOptions {
  // Of each collective of the group. At most kMaxCommunicatorTimeout.
  std::chrono::milliseconds timeout{60'000};
};

std::unique_ptr<Communicator> MakeC10dCommunicator(
    c10::intrusive_ptr<c10d::ProcessGroup> group,
    const C10dOptions& options = {});

}  // namespace muonstore

#endif  // MUONSTORE_C10D_H_
