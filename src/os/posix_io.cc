#include "src/os/posix_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "muonstore/error.h"
#include "muonstore/file_system.h"
#include "src/base/aligned_bytes.h"
#include "src/base/log.h"
#include "src/base/pending.h"
#include "src/base/str.h"
#include "src/os/os_error.h"

namespace muonstore::os {
namespace {

constexpr mode_t kNewFileMode = 0666;  // Less the umask.

}  // namespace

std::shared_ptr<Engine> PosixIo::engine() {
  const std::lock_guard lock(mutex_);
  if (engine_ == nullptr) engine_ = MakeEngine(options_);
  return engine_;
}

PendingPtr PosixIo::Start(const OpenFilePtr& file,
                          const TransferRequest& request) {
  try {
    return engine()->Start(file, request);
  } catch (const Error&) {
    return std::make_unique<DonePending>(std::current_exception());
  }
}

bool PosixIo::TakesDirect(int fd) const {
  if (!options_.use_direct) return false;
  const AlignedBytes block(kIoBlockBytes);
  std::fill_n(block.data(), block.size(), std::byte{0});
  for (;;) {
    const ssize_t result = ::pwrite(fd, block.data(), block.size(), 0);
    if (result >= 0) return true;
    // Another error is not about O_DIRECT; whoever uses the file meets it.
    if (errno != EINTR) return errno != EINVAL && errno != EOPNOTSUPP;
  }
}

void PosixIo::SayNotDirect(const std::string& path) {
  {
    const std::lock_guard lock(mutex_);
    if (said_) return;
    said_ = true;
  }
  Log(LogLevel::kWarning,
      StrCat("no direct I/O (O_DIRECT) on the file system of ", Printable(path),
             ": reading and writing through the page cache instead"));
}

FileDescriptor OpenOrThrow(const std::string& path, int flags,
                           const char* action) {
  for (;;) {
    FileDescriptor fd(::open(path.c_str(), flags | O_CLOEXEC, kNewFileMode));
    if (fd.valid()) return fd;
    if (errno != EINTR) ThrowErrno(errno, action, path);
  }
}

}  // namespace muonstore::os
