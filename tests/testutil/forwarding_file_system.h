// A FileSystem that passes every call on: tests override what they change.
// Files for direct I/O come from OpenForRead and CreateFile as well, so that
// these see all of them.
#ifndef MUONSTORE_TESTS_TESTUTIL_FORWARDING_FILE_SYSTEM_H_
#define MUONSTORE_TESTS_TESTUTIL_FORWARDING_FILE_SYSTEM_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muonstore/error.h"
#include "muonstore/file_system.h"

namespace muonstore::testutil {

class ForwardingFileSystem : public FileSystem {
 public:
  // Without a base, every call that is not overridden throws kInternal.
  explicit ForwardingFileSystem(std::shared_ptr<FileSystem> base)
      : base_(std::move(base)) {}

  std::unique_ptr<RandomAccessFile> OpenForRead(
      const std::string& path) override {
    return base().OpenForRead(path);
  }
  std::unique_ptr<WritableFile> CreateFile(const std::string& path) override {
    return base().CreateFile(path);
  }
  std::unique_ptr<ScratchFile> CreateScratchFile(const std::string& directory,
                                                 uint64_t size_bytes) override {
    return base().CreateScratchFile(directory, size_bytes);
  }
  std::optional<FileStatus> Stat(const std::string& path) override {
    return base().Stat(path);
  }
  std::vector<std::string> List(const std::string& directory) override {
    return base().List(directory);
  }
  std::optional<std::string> ReadLink(const std::string& path) override {
    return base().ReadLink(path);
  }
  void Rename(const std::string& from, const std::string& to) override {
    base().Rename(from, to);
  }
  void Remove(const std::string& path) override { base().Remove(path); }
  void CreateDirectories(const std::string& path) override {
    base().CreateDirectories(path);
  }
  void RemoveDirectory(const std::string& path) override {
    base().RemoveDirectory(path);
  }
  bool Exchange(const std::string& a, const std::string& b) override {
    return base().Exchange(a, b);
  }
  bool MayList(const std::string& directory) override {
    return base().MayList(directory);
  }
  uint64_t AvailableBytes(const std::string& path) override {
    return base().AvailableBytes(path);
  }
  std::unique_ptr<FileLock> TryLock(const std::string& path) override {
    return base().TryLock(path);
  }
  void SyncDirectory(const std::string& path) override {
    base().SyncDirectory(path);
  }

 protected:
  FileSystem& base() const {
    if (base_ == nullptr) {
      throw Error(ErrorCode::kInternal, "this test has no such operation");
    }
    return *base_;
  }
  void set_base(std::shared_ptr<FileSystem> base) { base_ = std::move(base); }

 private:
  std::shared_ptr<FileSystem> base_;
};

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_TESTUTIL_FORWARDING_FILE_SYSTEM_H_
