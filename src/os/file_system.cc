// What a file system does that has no operation of its own for it.
#include "muonstore/file_system.h"

#include "src/base/pending.h"

namespace muonstore {
namespace {

class UnregisteredMemory final : public IoMemory {
 public:
  explicit UnregisteredMemory(uint64_t size_bytes)
      : report_{.total_bytes = size_bytes,
                .shortfall = "this file system registers no memory"} {}

  const IoMemoryReport& report() const override { return report_; }

 private:
  IoMemoryReport report_;
};

}  // namespace

PendingPtr RandomAccessFile::StartRead(uint64_t offset_bytes,
                                       std::span<std::byte> out) {
  return DoNow([&] { ReadAt(offset_bytes, out); });
}

PendingPtr WritableFile::StartWrite(uint64_t offset_bytes,
                                    std::span<const std::byte> data) {
  return DoNow([&] { WriteAt(offset_bytes, data); });
}

void WritableFile::Preallocate(uint64_t /*size_bytes*/) {}

std::unique_ptr<RandomAccessFile> FileSystem::OpenForDirectRead(
    const std::string& path) {
  return OpenForRead(path);
}

std::unique_ptr<WritableFile> FileSystem::CreateDirectFile(
    const std::string& path) {
  return CreateFile(path);
}

std::unique_ptr<IoMemory> FileSystem::RegisterMemory(
    std::span<std::byte> memory) {
  return std::make_unique<UnregisteredMemory>(memory.size());
}

}  // namespace muonstore
