#include "tests/torchfile/memory_file_system.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "tests/testutil/forwarding_file_system.h"

namespace muonstore::torchfile {
namespace {

class OneFile : public testutil::ForwardingFileSystem {
 public:
  explicit OneFile(std::string bytes)
      : ForwardingFileSystem(nullptr), bytes_(std::move(bytes)) {}

  std::unique_ptr<RandomAccessFile> OpenForRead(
      const std::string& /*path*/) override {
    return std::make_unique<MemoryFile>(bytes_);
  }
  std::optional<FileStatus> Stat(const std::string& /*path*/) override {
    return FileStatus{.type = FileType::kRegular, .size_bytes = bytes_.size()};
  }
  std::optional<std::string> ReadLink(const std::string& /*path*/) override {
    return std::nullopt;
  }

 private:
  std::string bytes_;
};

}  // namespace

void MemoryFile::ReadAt(uint64_t offset_bytes, std::span<std::byte> out) {
  if (offset_bytes > bytes_.size() ||
      out.size() > bytes_.size() - offset_bytes) {
    throw Error(ErrorCode::kInternal, "a read beyond the end of the file");
  }
  ++num_reads;
  num_bytes_read += out.size();
  largest_read = std::max<uint64_t>(largest_read, out.size());
  if (!out.empty()) {
    std::memcpy(out.data(), bytes_.data() + offset_bytes, out.size());
  }
}

std::shared_ptr<FileSystem> MemoryFileSystem(std::string bytes) {
  return std::make_shared<OneFile>(std::move(bytes));
}

std::shared_ptr<const TorchFile> OpenBytes(std::string bytes) {
  return TorchFile::Open(MemoryFileSystem(std::move(bytes)), "memory.pt");
}

std::string ReadAll(const TorchFile& file, const TensorInfo& tensor) {
  const auto num_bytes = static_cast<size_t>(tensor.shape.num_elements() *
                                             SizeBytes(tensor.dtype));
  std::string bytes(num_bytes, '\xEE');
  file.ReadElements(tensor, 0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::string ReadFileBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw std::runtime_error("cannot open " + path);
  }
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace muonstore::torchfile
