#include "src/os/file_descriptor.h"

#include <unistd.h>

#include <cerrno>

namespace muonstore::os {

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

FileDescriptor::~FileDescriptor() { Close(); }

int FileDescriptor::Close() {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0) {
    return 0;
  }
  // Linux releases the descriptor even when close() is interrupted.
  return ::close(fd) == 0 ? 0 : errno;
}

}  // namespace muonstore::os
