#include "src/os/preview_file_system.h"

#include <utility>
#include <vector>

#include "muonstore/error.h"

namespace muonstore::os {
namespace {

class Preview final : public FileSystem {
 public:
  Preview(std::shared_ptr<FileSystem> base, std::string directory,
          std::map<std::string, std::string> entries)
      : base_(std::move(base)),
        directory_(std::move(directory)),
        entries_(std::move(entries)) {}

  std::unique_ptr<RandomAccessFile> OpenForRead(
      const std::string& path) override {
    return base_->OpenForRead(Real(path).value_or(path));
  }
  std::unique_ptr<RandomAccessFile> OpenForDirectRead(
      const std::string& path) override {
    return base_->OpenForDirectRead(Real(path).value_or(path));
  }
  std::unique_ptr<IoMemory> RegisterMemory(
      std::span<std::byte> memory) override {
    return base_->RegisterMemory(memory);
  }
  std::optional<FileStatus> Stat(const std::string& path) override {
    if (path == directory_) return FileStatus{.type = FileType::kDirectory};
    const auto real = Real(path);
    return real ? base_->Stat(*real) : std::nullopt;
  }
  std::vector<std::string> List(const std::string& directory) override {
    if (directory != directory_) {
      return base_->List(Real(directory).value_or(directory));
    }
    std::vector<std::string> names;
    names.reserve(entries_.size());
    for (const auto& [name, path] : entries_) names.push_back(name);
    return names;
  }
  std::optional<std::string> ReadLink(const std::string& path) override {
    const auto real = path == directory_ ? std::nullopt : Real(path);
    return real ? base_->ReadLink(*real) : std::nullopt;
  }
  bool MayList(const std::string& directory) override {
    return base_->MayList(directory);
  }
  uint64_t AvailableBytes(const std::string& path) override {
    return base_->AvailableBytes(path);
  }

  std::unique_ptr<WritableFile> CreateFile(const std::string& path) override {
    Refuse(path);
  }
  std::unique_ptr<ScratchFile> CreateScratchFile(
      const std::string& directory, uint64_t /*size_bytes*/) override {
    Refuse(directory);
  }
  void Rename(const std::string& from, const std::string& /*to*/) override {
    Refuse(from);
  }
  void Remove(const std::string& path) override { Refuse(path); }
  void CreateDirectories(const std::string& path) override { Refuse(path); }
  void RemoveDirectory(const std::string& path) override { Refuse(path); }
  bool Exchange(const std::string& a, const std::string& /*b*/) override {
    Refuse(a);
  }
  std::unique_ptr<FileLock> TryLock(const std::string& path) override {
    Refuse(path);
  }
  void SyncDirectory(const std::string& path) override { Refuse(path); }

 private:
  [[noreturn]] static void Refuse(const std::string& path) {
    throw Error(ErrorCode::kInternal, "a preview is only read", {.file = path});
  }

  // Where `path` really is; nullopt: the directory has no such entry.
  std::optional<std::string> Real(const std::string& path) const {
    const std::string prefix = directory_ + "/";
    if (!path.starts_with(prefix)) return path;
    const size_t end = path.find('/', prefix.size());
    const auto entry =
        entries_.find(path.substr(prefix.size(), end - prefix.size()));
    if (entry == entries_.end()) return std::nullopt;
    return entry->second + (end == path.npos ? "" : path.substr(end));
  }

  std::shared_ptr<FileSystem> base_;
  std::string directory_;
  std::map<std::string, std::string> entries_;
};

}  // namespace

std::shared_ptr<FileSystem> PreviewFileSystem(
    std::shared_ptr<FileSystem> base, std::string directory,
    std::map<std::string, std::string> entries) {
  return std::make_shared<Preview>(std::move(base), std::move(directory),
                                   std::move(entries));
}

}  // namespace muonstore::os
