#include "src/os/posix_file_system.h"

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
#include "src/os/posix_scratch_file.h"

namespace muonstore {
namespace os {
namespace {

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
  explicit PosixFileSystemImpl(const IoOptions& options)
      : io_(std::make_shared<PosixIo>(options)) {}

  std::unique_ptr<RandomAccessFile> OpenForRead(
      const std::string& path) override {
    return MakeReader(Open(path));
  }

  std::unique_ptr<RandomAccessFile> OpenForDirectRead(
      const std::string& path) override {
    const OpenFilePtr file = Open(path);
    AddDirect(*file, O_RDONLY);
    return MakeReader(file);
  }

  std::unique_ptr<WritableFile> CreateFile(const std::string& path) override {
    return std::make_unique<PosixWritableFile>(Create(path), io_);
  }

  std::unique_ptr<WritableFile> CreateDirectFile(
      const std::string& path) override {
    const OpenFilePtr file = Create(path);
    AddDirect(*file, O_WRONLY);
    return std::make_unique<PosixWritableFile>(file, io_);
  }

  std::unique_ptr<ScratchFile> CreateScratchFile(const std::string& directory,
                                                 uint64_t size_bytes) override {
    return std::make_unique<PosixScratchFile>(directory, size_bytes, io_);
  }

  std::unique_ptr<IoMemory> RegisterMemory(
      std::span<std::byte> memory) override {
    return io_->engine()->Register(memory);
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

  bool MayList(const std::string& directory) override {
    return ::faccessat(AT_FDCWD, directory.c_str(), R_OK | X_OK, AT_EACCESS) ==
               0 ||
           errno != EACCES;
  }

  bool Exchange(const std::string& a, const std::string& b) override {
    if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(),
                    RENAME_EXCHANGE) == 0) {
      return true;
    }
    // EPERM: a sandbox that does not know the call.
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP ||
        errno == EPERM) {
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
        OpenOrThrow(path, O_RDONLY | O_DIRECTORY, "open the directory");
    if (::fsync(fd.get()) != 0) {
      ThrowErrno(errno, "sync the directory", path);
    }
  }

 private:
  static OpenFilePtr Open(const std::string& path) {
    // O_NONBLOCK: a FIFO in place of a file must not hang the open.
    auto file = std::make_shared<OpenFile>(OpenFile{
        .path = path, .fd = OpenOrThrow(path, O_RDONLY | O_NONBLOCK, "open")});
    if (!S_ISREG(StatOf(*file).st_mode)) {
      throw Error(ErrorCode::kUnavailable, "not a regular file",
                  {.file = path});
    }
    return file;
  }

  static OpenFilePtr Create(const std::string& path) {
    return std::make_shared<OpenFile>(OpenFile{
        .path = path,
        .fd = OpenOrThrow(path, O_WRONLY | O_CREAT | O_EXCL, "create")});
  }

  static struct stat StatOf(const OpenFile& file) {
    struct stat st {};
    if (::fstat(file.fd.get(), &st) != 0) ThrowErrno(errno, "stat", file.path);
    return st;
  }

  std::unique_ptr<RandomAccessFile> MakeReader(const OpenFilePtr& file) const {
    return std::make_unique<PosixRandomAccessFile>(
        file, static_cast<uint64_t>(StatOf(*file).st_size), io_);
  }

  // Gives the file its second descriptor, where the file system has that.
  void AddDirect(OpenFile& file, int access) const {
    FileDescriptor fd(
        ::open(file.path.c_str(), access | O_DIRECT | O_CLOEXEC | O_NONBLOCK));
    // Too many open files, or gone by now: that says nothing of O_DIRECT.
    if (!fd.valid() && errno != EINVAL && errno != EOPNOTSUPP) return;
    if (!fd.valid() || !io_->uses_direct() || !PassesProbe(fd, file, access)) {
      io_->SayNotDirect(file.path);
    } else if (IsSameFile(fd, file)) {
      file.direct_fd = std::move(fd);
      file.on_not_direct = [io = io_, path = file.path] {
        io->SayNotDirect(path);
      };
    }
  }

  // Reads show by themselves whether they are taken.
  bool PassesProbe(const FileDescriptor& fd, const OpenFile& file,
                   int access) const {
    if (access == O_RDONLY) return true;
    const bool passes = io_->TakesDirect(fd.get());
    if (::ftruncate(file.fd.get(), 0) != 0) {
      ThrowErrno(errno, "truncate", file.path);
    }
    return passes;
  }

  // Somebody may have put another one in its place.
  static bool IsSameFile(const FileDescriptor& fd, const OpenFile& file) {
    const struct stat expected = StatOf(file);
    struct stat st {};
    return ::fstat(fd.get(), &st) == 0 && st.st_dev == expected.st_dev &&
           st.st_ino == expected.st_ino;
  }

  std::shared_ptr<PosixIo> io_;
};

}  // namespace

std::shared_ptr<FileSystem> MakePosixFileSystem(const IoOptions& options) {
  return std::make_shared<PosixFileSystemImpl>(options);
}

}  // namespace os

std::shared_ptr<FileSystem> PosixFileSystem() {
  return os::MakePosixFileSystem({});
}

}  // namespace muonstore
