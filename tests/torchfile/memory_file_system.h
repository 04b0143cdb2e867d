// A FileSystem of byte strings, for reading only.
#ifndef MUONSTORE_TESTS_TORCHFILE_MEMORY_FILE_SYSTEM_H_
#define MUONSTORE_TESTS_TORCHFILE_MEMORY_FILE_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "formats/torchfile/torch_file.h"
#include "muonstore/file_system.h"

namespace muonstore::torchfile {

// One file's bytes. Counts what is read.
class MemoryFile : public RandomAccessFile {
 public:
  explicit MemoryFile(std::string_view bytes) : bytes_(bytes) {}

  const std::string& path() const override { return path_; }
  uint64_t size_bytes() const override { return bytes_.size(); }
  void ReadAt(uint64_t offset_bytes, std::span<std::byte> out) override;

  uint64_t num_reads = 0;
  uint64_t num_bytes_read = 0;
  uint64_t largest_read = 0;

 private:
  std::string path_ = "memory.pt";
  std::string_view bytes_;
};

// Holds one file, whatever path is asked for.
std::shared_ptr<FileSystem> MemoryFileSystem(std::string bytes);

// Opens `bytes` as the file "memory.pt".
std::shared_ptr<const TorchFile> OpenBytes(std::string bytes);

// The whole tensor, as little-endian bytes.
std::string ReadAll(const TorchFile& file, const TensorInfo& tensor);

// A file of the real file system as a string.
std::string ReadFileBytes(const std::string& path);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_TESTS_TORCHFILE_MEMORY_FILE_SYSTEM_H_
