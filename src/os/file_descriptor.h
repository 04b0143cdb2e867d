// The one owner of a POSIX file descriptor.
#ifndef MUONSTORE_SRC_OS_FILE_DESCRIPTOR_H_
#define MUONSTORE_SRC_OS_FILE_DESCRIPTOR_H_

#include <utility>

namespace muonstore::os {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  // Closes; what close() could report is lost here: writers call Close().
  ~FileDescriptor();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // The result of close(2): 0 or an errno value.
  int Close();

 private:
  int fd_ = -1;
};

}  // namespace muonstore::os

#endif  // MUONSTORE_SRC_OS_FILE_DESCRIPTOR_H_
