#include "converters/dry_run_file_system.h"

#include <string>
#include <utility>
#include <vector>

namespace muonstore {
namespace {

class DroppedFile final : public WritableFile {
 public:
  explicit DroppedFile(std::string path) : path_(std::move(path)) {}

  const std::string& path() const override { return path_; }
  void WriteAt(uint64_t /*offset_bytes*/,
               std::span<const std::byte> /*data*/) override {}
  void Sync() override {}
  void Close() override {}

 private:
  std::string path_;
};

class NoLock final : public FileLock {};

class DryRun final : public FileSystem {
 public:
  explicit DryRun(std::shared_ptr<FileSystem> base) : base_(std::move(base)) {}

  std::unique_ptr<RandomAccessFile> OpenForRead(
      const std::string& path) override {
    return base_->OpenForRead(path);
  }
  std::unique_ptr<RandomAccessFile> OpenForDirectRead(
      const std::string& path) override {
    return base_->OpenForDirectRead(path);
  }
  std::unique_ptr<IoMemory> RegisterMemory(
      std::span<std::byte> memory) override {
    return base_->RegisterMemory(memory);
  }
  // Of no use for writing what is dropped; it has no name to leave behind.
  std::unique_ptr<ScratchFile> CreateScratchFile(const std::string& directory,
                                                 uint64_t size_bytes) override {
    return base_->CreateScratchFile(directory, size_bytes);
  }
  std::unique_ptr<WritableFile> CreateFile(const std::string& path) override {
    return std::make_unique<DroppedFile>(path);
  }
  std::optional<FileStatus> Stat(const std::string& path) override {
    return base_->Stat(path);
  }
  // A directory that would have been created is empty.
  std::vector<std::string> List(const std::string& directory) override {
    if (!base_->Stat(directory)) return {};
    return base_->List(directory);
  }
  std::optional<std::string> ReadLink(const std::string& path) override {
    return base_->ReadLink(path);
  }
  void Rename(const std::string& /*from*/, const std::string& /*to*/) override {
  }
  void Remove(const std::string& /*path*/) override {}
  void CreateDirectories(const std::string& /*path*/) override {}
  void RemoveDirectory(const std::string& /*path*/) override {}
  bool Exchange(const std::string& /*a*/, const std::string& /*b*/) override {
    return true;
  }
  bool MayList(const std::string& directory) override {
    return base_->MayList(directory);
  }
  uint64_t AvailableBytes(const std::string& path) override {
    return base_->AvailableBytes(path);
  }
  std::unique_ptr<FileLock> TryLock(const std::string& /*path*/) override {
    return std::make_unique<NoLock>();
  }
  void SyncDirectory(const std::string& /*path*/) override {}

 private:
  std::shared_ptr<FileSystem> base_;
};

}  // namespace

std::shared_ptr<FileSystem> DryRunFileSystem(std::shared_ptr<FileSystem> base) {
  return std::make_shared<DryRun>(std::move(base));
}

}  // namespace muonstore
