#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "muonstore/error.h"
#include "muonstore/file_system.h"
#include "src/os/file_descriptor.h"
#include "src/os/file_lock.h"
#include "src/os/os_error.h"
#include "src/os/posix_file.h"

namespace muonstore {
namespace os {
namespace {

constexpr mode_t kNewFileMode = 0666;  // Less the umask.

FileDescriptor OpenOrThrow(const std::string& path, int flags, mode_t mode,
                           const char* action) {
  for (;;) {
    FileDescriptor fd(::open(path.c_str(), flags | O_CLOEXEC, mode));
    if (fd.valid()) {
      return fd;
    }
    if (errno != EINTR) {
      ThrowErrno(errno, action, path);
    }
  }
}

FileStatus ToStatus(const struct stat& st) {
  FileStatus status;
  if (S_ISREG(st.st_mode)) {
    status.type = FileType::kRegular;
  } else if (S_ISDIR(st.st_mode)) {
    status.type = FileType::kDirectory;
  }
  status.size_bytes = static_cast<uint64_t>(st.st_size);
  status.allocated_bytes = static_cast<uint64_t>(st.st_blocks) * 512;
  status.modified_ns = static_cast<int64_t>(st.st_mtim.tv_sec) * 1'000'000'000 +
                       st.st_mtim.tv_nsec;
  return status;
}

class PosixFileSystemImpl final : public FileSystem {
 public:
  std::unique_ptr<RandomAccessFile> OpenForRead(
      const std::string& path) override {
    // O_NONBLOCK: a FIFO in place of a file must not hang the open.
    FileDescriptor fd = OpenOrThrow(path, O_RDONLY | O_NONBLOCK, 0, "open");
    struct stat st {};
    if (::fstat(fd.get(), &st) != 0) {
      ThrowErrno(errno, "stat", path);
    }
    if (!S_ISREG(st.st_mode)) {
      throw Error(ErrorCode::kUnavailable, "not a regular file",
                  {.file = path});
    }
    return std::make_unique<PosixRandomAccessFile>(
        std::move(fd), path, static_cast<uint64_t>(st.st_size));
  }

  std::unique_ptr<WritableFile> CreateFile(const std::string& path) override {
    return std::make_unique<PosixWritableFile>(
        OpenOrThrow(path, O_WRONLY | O_CREAT | O_EXCL, kNewFileMode, "create"),
        path);
  }

  std::optional<FileStatus> Stat(const std::string& path) override {
    struct stat st {};
    if (::stat(path.c_str(), &st) == 0) {
      return ToStatus(st);
    }
    // A link that leads to itself leads nowhere.
    if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) {
      return std::nullopt;
    }
    ThrowErrno(errno, "stat", path);
  }

  std::vector<std::string> List(const std::string& directory) override {
    std::vector<std::string> names;
    std::error_code error;
    std::filesystem::directory_iterator it(directory, error);
    for (; !error && it != std::filesystem::directory_iterator();
         it.increment(error)) {
      names.push_back(it->path().filename().string());
    }
    if (error) {
      ThrowErrno(error.value(), "list", directory);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  std::optional<std::string> ReadLink(const std::string& path) override {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(path, error);
    if (!error) {
      return target.string();
    }
    if (error.value() == EINVAL || error.value() == ENOENT ||
        error.value() == ENOTDIR) {
      return std::nullopt;  // Not a link, or nothing there.
    }
    ThrowErrno(error.value(), "read the link", path);
  }

  void Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) {
      ThrowErrno(errno, "rename to " + to, from);
    }
  }

  void Remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) {
      ThrowErrno(errno, "remove", path);
    }
  }

  void CreateDirectories(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) {
      ThrowErrno(error.value(), "create the directory", path);
    }
  }

  void RemoveDirectory(const std::string& path) override {
    if (::rmdir(path.c_str()) != 0) {
      ThrowErrno(errno, "remove the directory", path);
    }
  }

  bool Exchange(const std::string& a, const std::string& b) override {
    if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(),
                    RENAME_EXCHANGE) == 0) {
      return true;
    }
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) {
      return false;
    }
    ThrowErrno(errno, "exchange with " + b, a);
  }

  uint64_t AvailableBytes(const std::string& path) override {
    struct statvfs st {};
    if (::statvfs(path.c_str(), &st) != 0) {
      ThrowErrno(errno, "ask for free space", path);
    }
    return static_cast<uint64_t>(st.f_bavail) * st.f_frsize;
  }

  std::unique_ptr<FileLock> TryLock(const std::string& path) override {
    return PosixFileLock::Try(path);
  }

  void SyncDirectory(const std::string& path) override {
    const FileDescriptor fd =
        OpenOrThrow(path, O_RDONLY | O_DIRECTORY, 0, "open the directory");
    if (::fsync(fd.get()) != 0) {
      ThrowErrno(errno, "sync the directory", path);
    }
  }
};

}  // namespace
}  // namespace os

std::shared_ptr<FileSystem> PosixFileSystem() {
  return std::make_shared<os::PosixFileSystemImpl>();
}

}  // namespace muonstore
