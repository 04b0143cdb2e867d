#include "tests/native/memory_tree.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "src/base/str.h"
#include "tests/testutil/scratch.h"

namespace muonstore::native {
namespace {

class File final : public RandomAccessFile {
 public:
  File(std::string path, std::string bytes)
      : path_(std::move(path)), bytes_(std::move(bytes)) {}

  const std::string& path() const override { return path_; }
  uint64_t size_bytes() const override { return bytes_.size(); }
  void ReadAt(uint64_t offset_bytes, std::span<std::byte> out) override {
    if (offset_bytes > bytes_.size() ||
        out.size() > bytes_.size() - offset_bytes) {
      throw Error(ErrorCode::kDataLoss,
                  StrCat("file ends at byte ", bytes_.size()), {.file = path_});
    }
    const auto from = std::as_bytes(std::span(bytes_));
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(offset_bytes),
                out.size(), out.begin());
  }

 private:
  std::string path_;
  std::string bytes_;
};

}  // namespace

std::shared_ptr<MemoryTree> MemoryTree::Load(const std::string& directory) {
  auto tree = std::make_shared<MemoryTree>();
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    tree->files[entry.path().string()] = testutil::ReadBytes(entry.path());
  }
  return tree;
}

std::unique_ptr<RandomAccessFile> MemoryTree::OpenForRead(
    const std::string& path) {
  const auto it = files.find(path);
  if (it == files.end()) {
    throw Error(ErrorCode::kNotFound, "no such file", {.file = path});
  }
  return std::make_unique<File>(path, it->second);
}

std::optional<FileStatus> MemoryTree::Stat(const std::string& path) {
  const auto it = files.find(path);
  if (it != files.end()) {
    return FileStatus{.type = FileType::kRegular,
                      .size_bytes = it->second.size()};
  }
  return List(path).empty()
             ? std::nullopt
             : std::optional(FileStatus{.type = FileType::kDirectory});
}

std::vector<std::string> MemoryTree::List(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& [path, bytes] : files) {
    if (path.starts_with(directory + "/")) {
      names.push_back(path.substr(directory.size() + 1));
    }
  }
  return names;
}

}  // namespace muonstore::native
