#include "src/os/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "src/os/os_error.h"

namespace muonstore::os {
namespace {

// An earlier holder may have removed the file between our open and our lock.
bool IsStillAt(const FileDescriptor& fd, const std::string& path) {
  struct stat ours {};
  struct stat there {};
  return ::fstat(fd.get(), &ours) == 0 && ::stat(path.c_str(), &there) == 0 &&
         ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

}  // namespace

std::unique_ptr<PosixFileLock> PosixFileLock::Try(const std::string& path) {
  for (;;) {
    FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!fd.valid()) {
      if (errno == EINTR) {
        continue;
      }
      ThrowErrno(errno, "create the lock file", path);
    }
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) {
        return nullptr;
      }
      if (errno == EINTR) {
        continue;
      }
      const int error = errno;
      // Where no lock can be had, nobody else holds this file.
      if (IsStillAt(fd, path)) ::unlink(path.c_str());
      ThrowErrno(error, "lock", path);
    }
    if (IsStillAt(fd, path)) {
      return std::make_unique<PosixFileLock>(std::move(fd), path);
    }
  }
}

PosixFileLock::PosixFileLock(FileDescriptor fd, std::string path)
    : fd_(std::move(fd)), path_(std::move(path)) {}

PosixFileLock::~PosixFileLock() {
  // While the lock is held: whoever opened the file before sees it gone.
  if (IsStillAt(fd_, path_)) {
    ::unlink(path_.c_str());
  }
}

}  // namespace muonstore::os
