// How the ranks of a node find each other.
//
// What, in order:
//   1. Rank 0 listens at the abstract address of the rendezvous; the others
//      connect, again and again until it is there, and say who they are.
//      Strangers and other users are turned away.
//   2. When all have come rank 0 creates the control block and opens a pidfd on
//      every process, and sends both to each.
//   3. The sockets stay open: later descriptors go through rank 0.
//   A rank that does not come, comes twice, or counts the ranks differently is
//   an error on all that came, in rank 0's words.
// Ownership: `Membership` owns all of it.
// Failures: Error(kUnavailable) when not all came in time;
//   Error(kInvalidArgument) for ranks that do not fit together.
#ifndef MUONSTORE_SRC_COMM_SHARED_RENDEZVOUS_H_
#define MUONSTORE_SRC_COMM_SHARED_RENDEZVOUS_H_

#include <memory>
#include <vector>

#include "muonstore/communicator.h"
#include "src/comm/shared/peer_watch.h"
#include "src/os/file_descriptor.h"
#include "src/tier/shared_memory.h"

namespace muonstore::comm {

struct Membership {
  int32_t rank = 0;
  int32_t size = 1;
  std::chrono::milliseconds timeout{};
  // Shared, so that threads can be ranks over one mapping.
  std::shared_ptr<tier::SharedMemory> control;
  std::shared_ptr<const PeerWatch> peers;
  // Rank 0: one a rank, its own empty. The others: one, to rank 0.
  std::vector<os::FileDescriptor> links;
};

Membership Meet(const SharedMemoryOptions& options);

}  // namespace muonstore::comm

#endif  // MUONSTORE_SRC_COMM_SHARED_RENDEZVOUS_H_
