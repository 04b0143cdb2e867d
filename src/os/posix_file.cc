#include "src/os/posix_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/os/os_error.h"

namespace muonstore::os {
namespace {

// Linux transfers at most 0x7ffff000 bytes a call.
constexpr size_t kMaxTransferBytes = size_t{1} << 30;

}  // namespace

PosixRandomAccessFile::PosixRandomAccessFile(FileDescriptor fd,
                                             std::string path,
                                             uint64_t size_bytes)
    : fd_(std::move(fd)), path_(std::move(path)), size_bytes_(size_bytes) {}

void PosixRandomAccessFile::ReadAt(uint64_t offset_bytes,
                                   std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    const size_t want = std::min(out.size() - done, kMaxTransferBytes);
    const ssize_t got = ::pread(fd_.get(), out.data() + done, want,
                                static_cast<off_t>(offset_bytes + done));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      ThrowErrno(errno, "read", path_);
    }
    if (got == 0) {
      throw Error(ErrorCode::kDataLoss,
                  StrCat("the file ends at byte ", offset_bytes + done),
                  {.file = path_,
                   .offset_bytes = offset_bytes,
                   .expected = StrCat(out.size(), " bytes"),
                   .found = StrCat(done, " bytes")});
    }
    done += static_cast<size_t>(got);
  }
}

PosixWritableFile::PosixWritableFile(FileDescriptor fd, std::string path)
    : fd_(std::move(fd)), path_(std::move(path)) {}

void PosixWritableFile::WriteAt(uint64_t offset_bytes,
                                std::span<const std::byte> data) {
  size_t done = 0;
  while (done < data.size()) {
    const size_t want = std::min(data.size() - done, kMaxTransferBytes);
    const ssize_t put = ::pwrite(fd_.get(), data.data() + done, want,
                                 static_cast<off_t>(offset_bytes + done));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      ThrowErrno(put < 0 ? errno : ENOSPC, "write", path_);
    }
    done += static_cast<size_t>(put);
  }
}

void PosixWritableFile::Sync() {
  if (::fsync(fd_.get()) != 0) {
    ThrowErrno(errno, "sync", path_);
  }
}

void PosixWritableFile::Close() {
  const int error = fd_.Close();
  if (error != 0) {
    ThrowErrno(error, "close", path_);
  }
}

}  // namespace muonstore::os
