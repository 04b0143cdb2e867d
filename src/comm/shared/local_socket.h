// Unix sockets without a name in any file system, and descriptors through them.
//
// What: SOCK_SEQPACKET: a message arrives whole or not at all.
// Failures: Error(kUnavailable), or what errno says; a peer that is gone is no
//   failure here.
#ifndef MUONSTORE_SRC_COMM_SHARED_LOCAL_SOCKET_H_
#define MUONSTORE_SRC_COMM_SHARED_LOCAL_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/os/file_descriptor.h"

namespace muonstore::comm {

struct Message {
  std::vector<std::byte> bytes;
  std::vector<os::FileDescriptor> descriptors;
};

enum class ReceiveState { kMessage, kNothingYet, kClosed };

// The abstract address of `name`, at most 80 bytes; empty where it is taken.
os::FileDescriptor ListenAt(const std::string& name);
// Empty where nobody listens.
os::FileDescriptor ConnectTo(const std::string& name);
// Empty where nobody is waiting.
os::FileDescriptor AcceptFrom(const os::FileDescriptor& listener);
std::pair<os::FileDescriptor, os::FileDescriptor> SocketPair();

// The process at the other end as it was when it connected or listened; no
// value for one of another user.
std::optional<int> PidOfSameUser(const os::FileDescriptor& socket);

// False where the peer is gone.
bool SendMessage(const os::FileDescriptor& socket,
                 std::span<const std::byte> bytes,
                 std::span<const int> descriptors);
// Does not block.
ReceiveState ReceiveMessage(const os::FileDescriptor& socket, Message& message);

}  // namespace muonstore::comm

#endif  // MUONSTORE_SRC_COMM_SHARED_LOCAL_SOCKET_H_
