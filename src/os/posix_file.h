// Files of the operating system behind the interfaces of file_system.h.
#ifndef MUONSTORE_SRC_OS_POSIX_FILE_H_
#define MUONSTORE_SRC_OS_POSIX_FILE_H_

#include <string>

#include "muonstore/file_system.h"
#include "src/os/file_descriptor.h"

namespace muonstore::os {

class PosixRandomAccessFile final : public RandomAccessFile {
 public:
  PosixRandomAccessFile(FileDescriptor fd, std::string path,
                        uint64_t size_bytes);

  const std::string& path() const override { return path_; }
  uint64_t size_bytes() const override { return size_bytes_; }
  void ReadAt(uint64_t offset_bytes, std::span<std::byte> out) override;

 private:
  FileDescriptor fd_;
  std::string path_;
  uint64_t size_bytes_;
};

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(FileDescriptor fd, std::string path);

  const std::string& path() const override { return path_; }
  void WriteAt(uint64_t offset_bytes, std::span<const std::byte> data) override;
  void Sync() override;
  void Close() override;

 private:
  FileDescriptor fd_;
  std::string path_;
};

}  // namespace muonstore::os

#endif  // MUONSTORE_SRC_OS_POSIX_FILE_H_
