#include "src/os/posix_file.h"

#include <fcntl.h>
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
constexpr uint64_t kWritebackBytes = uint64_t{8} << 20;

}  // namespace

PosixRandomAccessFile::PosixRandomAccessFile(OpenFilePtr file,
                                             uint64_t size_bytes,
                                             std::shared_ptr<PosixIo> io)
    : file_(std::move(file)), size_bytes_(size_bytes), io_(std::move(io)) {}

void PosixRandomAccessFile::ReadAt(uint64_t offset_bytes,
                                   std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    const size_t want = std::min(out.size() - done, kMaxTransferBytes);
    const ssize_t got = ::pread(file_->fd.get(), out.data() + done, want,
                                static_cast<off_t>(offset_bytes + done));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      ThrowErrno(errno, "read", path());
    }
    if (got == 0) {
      throw Error(ErrorCode::kDataLoss,
                  StrCat("the file ends at byte ", offset_bytes + done),
                  {.file = path(),
                   .offset_bytes = offset_bytes,
                   .expected = StrCat(out.size(), " bytes"),
                   .found = StrCat(done, " bytes")});
    }
    done += static_cast<size_t>(got);
  }
}

PendingPtr PosixRandomAccessFile::StartRead(uint64_t offset_bytes,
                                            std::span<std::byte> out) {
  return io_->Start(file_, {.offset_bytes = offset_bytes,
                            .data = out.data(),
                            .size_bytes = out.size()});
}

PosixWritableFile::PosixWritableFile(OpenFilePtr file,
                                     std::shared_ptr<PosixIo> io)
    : file_(std::move(file)), io_(std::move(io)) {}

void PosixWritableFile::WriteAt(uint64_t offset_bytes,
                                std::span<const std::byte> data) {
  size_t done = 0;
  while (done < data.size()) {
    const size_t want = std::min(data.size() - done, kMaxTransferBytes);
    const ssize_t put = ::pwrite(file_->fd.get(), data.data() + done, want,
                                 static_cast<off_t>(offset_bytes + done));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      ThrowErrno(put < 0 ? errno : ENOSPC, "write", path());
    }
    done += static_cast<size_t>(put);
  }
  dirty_bytes_ += data.size();
  if (dirty_bytes_ >= kWritebackBytes) {
    StartWriteback();
  }
}

void PosixWritableFile::StartWriteback() {
  dirty_bytes_ = 0;
  // Only a hint: Sync reports what fails. Zero bytes mean: to the end.
  static_cast<void>(
      ::sync_file_range(file_->fd.get(), 0, 0, SYNC_FILE_RANGE_WRITE));
}

PendingPtr PosixWritableFile::StartWrite(uint64_t offset_bytes,
                                         std::span<const std::byte> data) {
  // A write leaves the memory as it is; reads share the type of a request.
  return io_->Start(file_, {.is_write = true,
                            .offset_bytes = offset_bytes,
                            .data = const_cast<std::byte*>(data.data()),
                            .size_bytes = data.size()});
}

void PosixWritableFile::Preallocate(uint64_t size_bytes) {
  const int error = TakeRoom(file_->fd.get(), size_bytes);
  if (error != 0 && error != EOPNOTSUPP) {
    ThrowErrno(error, StrCat("take ", size_bytes, " bytes of room"), path());
  }
}

void PosixWritableFile::Sync() {
  if (::fsync(file_->fd.get()) != 0) {
    ThrowErrno(errno, "sync", path());
  }
}

void PosixWritableFile::Close() {
  const int error = file_->fd.Close();
  if (error != 0) {
    ThrowErrno(error, "close", path());
  }
}

int TakeRoom(int fd, uint64_t size_bytes) {
  for (;;) {
    if (size_bytes == 0 ||
        ::fallocate(fd, 0, 0, static_cast<off_t>(size_bytes)) == 0) {
      return 0;
    }
    if (errno != EINTR) return errno == ENOSYS ? EOPNOTSUPP : errno;
  }
}

}  // namespace muonstore::os
