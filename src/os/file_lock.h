// A lock that dies with its holder, on a file that dies with the lock.
#ifndef MUONSTORE_SRC_OS_FILE_LOCK_H_
#define MUONSTORE_SRC_OS_FILE_LOCK_H_

#include <memory>
#include <string>

#include "muonstore/file_system.h"
#include "src/os/file_descriptor.h"

namespace muonstore::os {

class PosixFileLock final : public FileLock {
 public:
  // Null where another holder has the lock.
  static std::unique_ptr<PosixFileLock> Try(const std::string& path);

  PosixFileLock(FileDescriptor fd, std::string path);
  ~PosixFileLock() override;

 private:
  FileDescriptor fd_;
  std::string path_;
};

}  // namespace muonstore::os

#endif  // MUONSTORE_SRC_OS_FILE_LOCK_H_
