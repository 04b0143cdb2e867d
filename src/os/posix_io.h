// What the files of one PosixFileSystem share: the engine, made when it is
// first needed, and what was found out about O_DIRECT.
//
// Threads: any.
// Failures: those of MakeEngine, from engine().
#ifndef MUONSTORE_SRC_OS_POSIX_IO_H_
#define MUONSTORE_SRC_OS_POSIX_IO_H_

#include <memory>
#include <mutex>
#include <string>

#include "src/os/file_descriptor.h"
#include "src/os/io/engine.h"

namespace muonstore::os {

class PosixIo {
 public:
  explicit PosixIo(const IoOptions& options) : options_(options) {}

  std::shared_ptr<Engine> engine();
  // Errors come out of the handle.
  PendingPtr Start(const OpenFilePtr& file, const TransferRequest& request);
  // Whether a direct write to what is open succeeds: some file systems open
  // with O_DIRECT and refuse that. It leaves zeros in the first block, which
  // must be nobody's yet.
  bool TakesDirect(int fd) const;
  bool uses_direct() const { return options_.use_direct; }
  // Once.
  void SayNotDirect(const std::string& path);

 private:
  IoOptions options_;
  std::mutex mutex_;
  std::shared_ptr<Engine> engine_;
  bool said_ = false;
};

// A descriptor; throws Error with "cannot <action>".
FileDescriptor OpenOrThrow(const std::string& path, int flags,
                           const char* action);

}  // namespace muonstore::os

#endif  // MUONSTORE_SRC_OS_POSIX_IO_H_
