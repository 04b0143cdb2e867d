// Files of the operating system behind the interfaces of file_system.h.
#ifndef MUONSTORE_SRC_OS_POSIX_FILE_H_
#define MUONSTORE_SRC_OS_POSIX_FILE_H_

#include <memory>
#include <string>

#include "muonstore/file_system.h"
#include "src/os/io/transfer.h"
#include "src/os/posix_io.h"

namespace muonstore::os {

class PosixRandomAccessFile final : public RandomAccessFile {
 public:
  PosixRandomAccessFile(OpenFilePtr file, uint64_t size_bytes,
                        std::shared_ptr<PosixIo> io);

  const std::string& path() const override { return file_->path; }
  uint64_t size_bytes() const override { return size_bytes_; }
  void ReadAt(uint64_t offset_bytes, std::span<std::byte> out) override;
  PendingPtr StartRead(uint64_t offset_bytes,
                       std::span<std::byte> out) override;

 private:
  OpenFilePtr file_;
  uint64_t size_bytes_;
  std::shared_ptr<PosixIo> io_;
};

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(OpenFilePtr file, std::shared_ptr<PosixIo> io);

  const std::string& path() const override { return file_->path; }
  void WriteAt(uint64_t offset_bytes, std::span<const std::byte> data) override;
  PendingPtr StartWrite(uint64_t offset_bytes,
                        std::span<const std::byte> data) override;
  void Preallocate(uint64_t size_bytes) override;
  void Sync() override;
  void Close() override;

 private:
  // Has the disk begin with what lies in the page cache, so that a sync at the
  // end waits for little.
  void StartWriteback();

  OpenFilePtr file_;
  std::shared_ptr<PosixIo> io_;
  uint64_t dirty_bytes_ = 0;  // About: written since the last writeback began.
};

// Takes the room of bytes [0, size_bytes) of a file: 0, or an errno value;
// EOPNOTSUPP where the file system cannot.
int TakeRoom(int fd, uint64_t size_bytes);

}  // namespace muonstore::os

#endif  // MUONSTORE_SRC_OS_POSIX_FILE_H_
