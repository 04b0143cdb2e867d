#include "src/comm/shared/peer_watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "src/base/str.h"
#include "src/os/os_error.h"

namespace muonstore::comm {

os::FileDescriptor OpenPidfd(int pid) {
  // glibc 2.36 declares pidfd_open for C alone.
  os::FileDescriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) {
    os::ThrowErrno(errno, StrCat("watch process ", pid), "");
  }
  return pidfd;
}

std::vector<int32_t> PeerWatch::Ended() const {
  std::vector<pollfd> polled;
  polled.reserve(peers_.size());
  for (const Peer& peer : peers_) {
    polled.push_back({peer.pidfd.get(), POLLIN, 0});
  }
  std::vector<int32_t> ended;
  if (::poll(polled.data(), polled.size(), 0) > 0) {
    for (size_t rank = 0; rank < polled.size(); ++rank) {
      if ((polled[rank].revents & POLLIN) != 0) {
        ended.push_back(static_cast<int32_t>(rank));
      }
    }
  }
  return ended;
}

}  // namespace muonstore::comm
