#include "src/comm/shared/local_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "src/os/os_error.h"

namespace muonstore::comm {
namespace {

constexpr size_t kMaxMessageBytes = 8192;
// The kernel's limit (SCM_MAX_FD).
constexpr size_t kMaxDescriptors = 253;
constexpr int kBacklog = 128;

struct Address {
  sockaddr_un socket{};
  socklen_t length = 0;
};

// A zero byte first: the address lives as long as its socket.
Address AbstractAddress(const std::string& name) {
  Address address;
  address.socket.sun_family = AF_UNIX;
  const std::string full = "muonstore/" + name;
  const size_t bytes =
      std::min(full.size(), sizeof(address.socket.sun_path) - 1);
  std::memcpy(address.socket.sun_path + 1, full.data(), bytes);
  address.length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  return address;
}

os::FileDescriptor OpenSocket() {
  os::FileDescriptor socket(
      ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) {
    os::ThrowErrno(errno, "open a socket", "");
  }
  return socket;
}

// The control part of a message, aligned for its header.
struct ControlBuffer {
  alignas(cmsghdr)
      std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> bytes{};
};

void AttachDescriptors(std::span<const int> descriptors, ControlBuffer& control,
                       msghdr& header) {
  header.msg_control = control.bytes.data();
  header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* part = CMSG_FIRSTHDR(&header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
}

void DetachDescriptors(msghdr& header,
                       std::vector<os::FileDescriptor>& descriptors) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr;
       part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      descriptors.emplace_back(fd);
    }
  }
}

}  // namespace

os::FileDescriptor ListenAt(const std::string& name) {
  os::FileDescriptor socket = OpenSocket();
  const Address address = AbstractAddress(name);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.socket),
             address.length) != 0) {
    if (errno == EADDRINUSE) {
      return {};
    }
    os::ThrowErrno(errno, "bind a socket", "");
  }
  if (::listen(socket.get(), kBacklog) != 0) {
    os::ThrowErrno(errno, "listen", "");
  }
  return socket;
}

os::FileDescriptor ConnectTo(const std::string& name) {
  os::FileDescriptor socket = OpenSocket();
  const Address address = AbstractAddress(name);
  if (::connect(socket.get(),
                reinterpret_cast<const sockaddr*>(&address.socket),
                address.length) == 0) {
    return socket;
  }
  // EAGAIN: the backlog is full.
  if (errno == ECONNREFUSED || errno == ENOENT || errno == EAGAIN ||
      errno == EINTR) {
    return {};
  }
  os::ThrowErrno(errno, "connect to rank 0", "");
}

os::FileDescriptor AcceptFrom(const os::FileDescriptor& listener) {
  return os::FileDescriptor(::accept4(listener.get(), nullptr, nullptr,
                                      SOCK_CLOEXEC | SOCK_NONBLOCK));
}

std::pair<os::FileDescriptor, os::FileDescriptor> SocketPair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                   ends.data()) != 0) {
    os::ThrowErrno(errno, "open a pair of sockets", "");
  }
  return {os::FileDescriptor(ends[0]), os::FileDescriptor(ends[1])};
}

std::optional<int> PidOfSameUser(const os::FileDescriptor& socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) !=
          0 ||
      peer.uid != ::geteuid()) {
    return std::nullopt;
  }
  return peer.pid;
}

bool SendMessage(const os::FileDescriptor& socket,
                 std::span<const std::byte> bytes,
                 std::span<const int> descriptors) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  ControlBuffer control;
  if (!descriptors.empty()) {
    AttachDescriptors(descriptors, control, header);
  }
  if (::sendmsg(socket.get(), &header, MSG_NOSIGNAL) >= 0) {
    return true;
  }
  if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) {
    return false;
  }
  os::ThrowErrno(errno, "send a message to a peer", "");
}

ReceiveState ReceiveMessage(const os::FileDescriptor& socket,
                            Message& message) {
  message.bytes.resize(kMaxMessageBytes);
  message.descriptors.clear();
  iovec part{message.bytes.data(), message.bytes.size()};
  ControlBuffer control;
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes.data();
  header.msg_controllen = control.bytes.size();
  const ssize_t count =
      ::recvmsg(socket.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (count > 0) {
    message.bytes.resize(static_cast<size_t>(count));
    DetachDescriptors(header, message.descriptors);
    return ReceiveState::kMessage;
  }
  const bool nothing_yet =
      count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  return nothing_yet ? ReceiveState::kNothingYet : ReceiveState::kClosed;
}

}  // namespace muonstore::comm
