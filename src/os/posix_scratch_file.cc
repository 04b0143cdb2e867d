#include "src/os/posix_scratch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "muonstore/error.h"
#include "src/base/aligned_bytes.h"
#include "src/base/str.h"
#include "src/os/os_error.h"
#include "src/os/posix_file.h"

namespace muonstore::os {
namespace {

FileDescriptor CreateNamedOnce(const std::string& directory) {
  std::string path = StrCat(directory, "/.muonstore-scratch-XXXXXX");
  FileDescriptor fd(::mkostemp(path.data(), O_CLOEXEC));
  if (!fd.valid()) ThrowErrno(errno, "create a scratch file", directory);
  if (::unlink(path.c_str()) != 0) ThrowErrno(errno, "remove", path);
  return fd;
}

FileDescriptor CreateUnnamed(const std::string& directory) {
  for (;;) {
    FileDescriptor fd(::open(directory.c_str(),
                             O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
    if (fd.valid()) return fd;
    // EISDIR: a kernel that does not know the flag.
    if (errno == EOPNOTSUPP || errno == EISDIR) {
      return CreateNamedOnce(directory);
    }
    if (errno != EINTR) ThrowErrno(errno, "create a scratch file", directory);
  }
}

}  // namespace

PosixScratchFile::PosixScratchFile(const std::string& directory,
                                   uint64_t size_bytes,
                                   std::shared_ptr<PosixIo> io)
    : size_bytes_(size_bytes),
      io_(std::move(io)),
      file_(std::make_shared<OpenFile>(
          OpenFile{.path = StrCat(directory, " (scratch file)"),
                   .fd = CreateUnnamed(directory)})) {
  if (size_bytes % kIoBlockBytes != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "the size of a scratch file is no multiple of 4096",
                {.file = path(), .found = StrCat(size_bytes)});
  }
  MakeDirect(directory);
  Preallocate();
}

// One descriptor serves: every transfer is of whole blocks.
void PosixScratchFile::MakeDirect(const std::string& directory) {
  const int fd = file_->fd.get();
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) ThrowErrno(errno, "look at", path());
  if (::fcntl(fd, F_SETFL, flags | O_DIRECT) == 0) {
    if (io_->TakesDirect(fd)) return;
    if (::fcntl(fd, F_SETFL, flags) != 0) ThrowErrno(errno, "set up", path());
  }
  io_->SayNotDirect(directory);
}

void PosixScratchFile::Preallocate() {
  const int error = TakeRoom(file_->fd.get(), size_bytes_);
  if (error == EOPNOTSUPP) {
    WriteZeros();
  } else if (error != 0) {
    ThrowErrno(error, StrCat("take ", size_bytes_, " bytes of room"), path());
  }
}

void PosixScratchFile::WriteZeros() {
  constexpr uint64_t kStepBytes = uint64_t{8} << 20;
  const AlignedBytes zeros(std::min(kStepBytes, size_bytes_));
  std::fill_n(zeros.data(), zeros.size(), std::byte{0});
  for (uint64_t at = 0; at < size_bytes_; at += zeros.size()) {
    StartWrite(at, zeros.span().first(
                       std::min<uint64_t>(zeros.size(), size_bytes_ - at)))
        ->Wait();
  }
}

PendingPtr PosixScratchFile::Start(const TransferRequest& request) {
  const auto address = reinterpret_cast<uintptr_t>(request.data);
  const bool is_whole =
      (address | request.offset_bytes | request.size_bytes) % kIoBlockBytes ==
      0;
  if (!is_whole || request.offset_bytes > size_bytes_ ||
      request.size_bytes > size_bytes_ - request.offset_bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                "not whole blocks inside of the scratch file",
                {.file = path(),
                 .offset_bytes = request.offset_bytes,
                 .expected = StrCat("within ", size_bytes_, " bytes"),
                 .found = StrCat(request.size_bytes, " bytes")});
  }
  return io_->Start(file_, request);
}

PendingPtr PosixScratchFile::StartRead(uint64_t offset_bytes,
                                       std::span<std::byte> out) {
  return Start({.offset_bytes = offset_bytes,
                .data = out.data(),
                .size_bytes = out.size()});
}

PendingPtr PosixScratchFile::StartWrite(uint64_t offset_bytes,
                                        std::span<const std::byte> data) {
  // A write leaves the memory as it is; reads share the type of a request.
  return Start({.is_write = true,
                .offset_bytes = offset_bytes,
                .data = const_cast<std::byte*>(data.data()),
                .size_bytes = data.size()});
}

}  // namespace muonstore::os
