// Which processes the ranks are, and which of them have ended.
//
// Ownership: owns a pidfd a peer. A process id alone could be reused.
// Threads: any; it never changes.
#ifndef MUONSTORE_SRC_COMM_SHARED_PEER_WATCH_H_
#define MUONSTORE_SRC_COMM_SHARED_PEER_WATCH_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "src/os/file_descriptor.h"

namespace muonstore::comm {

struct Peer {
  int pid = -1;
  os::FileDescriptor pidfd;
};

// Throws Error(kUnavailable) for a process that is gone or cannot be seen.
os::FileDescriptor OpenPidfd(int pid);

class PeerWatch {
 public:
  // By rank.
  explicit PeerWatch(std::vector<Peer> peers) : peers_(std::move(peers)) {}

  int pid(int32_t rank) const { return peers_[static_cast<size_t>(rank)].pid; }
  // Ranks that have ended; their zombies count.
  std::vector<int32_t> Ended() const;

 private:
  std::vector<Peer> peers_;
};

}  // namespace muonstore::comm

#endif  // MUONSTORE_SRC_COMM_SHARED_PEER_WATCH_H_
