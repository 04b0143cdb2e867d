// A WritableFile that is a byte string, and fails when it is told to.
#ifndef MUONSTORE_TESTS_TORCHFILE_MEMORY_WRITABLE_FILE_H_
#define MUONSTORE_TESTS_TORCHFILE_MEMORY_WRITABLE_FILE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "muonstore/error.h"
#include "muonstore/file_system.h"

namespace muonstore::torchfile {

class MemoryWritableFile : public WritableFile {
 public:
  const std::string& path() const override { return path_; }
  void WriteAt(uint64_t offset_bytes,
               std::span<const std::byte> data) override {
    if (num_writes++ == fail_at) {
      throw Error(ErrorCode::kResourceExhausted, "no space", {.file = path_});
    }
    largest_write = std::max<uint64_t>(largest_write, data.size());
    bytes.resize(std::max<size_t>(bytes.size(), offset_bytes + data.size()));
    std::transform(data.begin(), data.end(),
                   bytes.begin() + static_cast<std::ptrdiff_t>(offset_bytes),
                   [](std::byte b) { return static_cast<char>(b); });
  }
  void Sync() override {}
  void Close() override {}

  std::string bytes;
  int64_t num_writes = 0;
  int64_t fail_at = -1;
  uint64_t largest_write = 0;

 private:
  std::string path_ = "written.pt";
};

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_TESTS_TORCHFILE_MEMORY_WRITABLE_FILE_H_
