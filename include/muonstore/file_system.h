// The seam to the file system.
//
// What: everything that muonstore does with files goes through a FileSystem, so
//   that tests can fail, cut or tear any operation. `PosixFileSystem()` is the
//   real one.
// Ownership: a file object owns its descriptor and closes it when destroyed;
//   for a writable file that is not a commit: call Sync() and Close().
// Threads: a FileSystem may be used by many threads at once. ReadAt may be
//   called by many threads on one file; a WritableFile belongs to one thread.
// Failures: Error with the path: kNotFound (no such file), kDataLoss (the file
//   ends before the range), kResourceExhausted (no space, too many
//   descriptors), kInvalidArgument (exists already), kUnavailable (any other
//   failure of the OS).

#ifndef MUONSTORE_FILE_SYSTEM_H_
#define MUONSTORE_FILE_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace muonstore {

enum class FileType { kRegular, kDirectory, kOther };

struct FileStatus {
  FileType type = FileType::kOther;
  uint64_t size_bytes = 0;
  uint64_t allocated_bytes = 0;  // Disk blocks in use; less for sparse files.
  int64_t modified_ns = 0;       // Since the Unix epoch.
};

class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  RandomAccessFile() = default;
  RandomAccessFile(const RandomAccessFile&) = delete;
  RandomAccessFile& operator=(const RandomAccessFile&) = delete;

  virtual const std::string& path() const = 0;
  // Size when the file was opened.
  virtual uint64_t size_bytes() const = 0;
  // Fills `out` from `offset_bytes`. A file that ends earlier is
  // Error(kDataLoss), "file ends at byte N".
  virtual void ReadAt(uint64_t offset_bytes, std::span<std::byte> out) = 0;
};

class WritableFile {
 public:
  virtual ~WritableFile() = default;
  WritableFile() = default;
  WritableFile(const WritableFile&) = delete;
  WritableFile& operator=(const WritableFile&) = delete;

  virtual const std::string& path() const = 0;
  virtual void WriteAt(uint64_t offset_bytes,
                       std::span<const std::byte> data) = 0;
  // fsync: what was written survives a power loss.
  virtual void Sync() = 0;
  virtual void Close() = 0;
};

// Held until it is destroyed, or the process ends in whatever way.
class FileLock {
 public:
  virtual ~FileLock() = default;
  FileLock() = default;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;

  // Opens for reading; links are followed. Never creates, locks or writes.
  virtual std::unique_ptr<RandomAccessFile> OpenForRead(
      const std::string& path) = 0;
  // Creates a new file; an existing one is Error(kInvalidArgument).
  virtual std::unique_ptr<WritableFile> CreateFile(const std::string& path) = 0;
  // Nothing there is nullopt; links are followed.
  virtual std::optional<FileStatus> Stat(const std::string& path) = 0;
  // Names (without "." and ".."), sorted bytewise.
  virtual std::vector<std::string> List(const std::string& directory) = 0;
  // The target of a symbolic link; nullopt where there is none.
  virtual std::optional<std::string> ReadLink(const std::string& path) = 0;
  // Atomically replaces `to`.
  virtual void Rename(const std::string& from, const std::string& to) = 0;
  virtual void Remove(const std::string& path) = 0;
  virtual void CreateDirectories(const std::string& path) = 0;
  // An empty one; one that holds something is Error(kUnavailable).
  virtual void RemoveDirectory(const std::string& path) = 0;
  // Atomically gives each of two paths the other's content; false where the
  // file system has no such operation.
  virtual bool Exchange(const std::string& a, const std::string& b) = 0;
  // Bytes that an ordinary user can still write below `path`.
  virtual uint64_t AvailableBytes(const std::string& path) = 0;
  // Creates the file where it is absent and locks it against every other
  // process and FileLock; null where another one holds it. The file goes when
  // the lock does.
  virtual std::unique_ptr<FileLock> TryLock(const std::string& path) = 0;
  // fsync of a directory: renames and creations in it survive a power loss.
  virtual void SyncDirectory(const std::string& path) = 0;
};

// The operating system's files.
std::shared_ptr<FileSystem> PosixFileSystem();

// Reads a whole file, at most `limit_bytes`: a larger one is
// Error(kResourceExhausted).
std::string ReadSmallFile(FileSystem& fs, const std::string& path,
                          uint64_t limit_bytes);

// A file that appears whole or not at all: written under a temporary name, then
// synced and renamed to `path`; without Commit() it leaves nothing. Links are
// followed; a device, pipe or directory at `path` is Error(kUnavailable).
class AtomicFile {
 public:
  AtomicFile(std::shared_ptr<FileSystem> fs, std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  WritableFile& file() { return *file_; }
  // Once; afterwards the new content is at `path` and durable.
  void Commit();

 private:
  std::shared_ptr<FileSystem> fs_;
  std::string path_;
  std::string temporary_;
  std::unique_ptr<WritableFile> file_;
};

}  // namespace muonstore

#endif  // MUONSTORE_FILE_SYSTEM_H_
