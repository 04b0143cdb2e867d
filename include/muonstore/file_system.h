// The seam to the file system.
//
// What: everything that muonstore does with files goes through a FileSystem, so
//   that tests can fail, cut or tear any operation. `PosixFileSystem()` is the
//   real one.
//   Start... are the asynchronous forms of reads and writes; a file system that
//   has none does the work at once, so that whatever a test does to reads and
//   writes happens to these, too.
// Ownership: a file object owns its descriptor and closes it when destroyed;
//   for a writable file that is not a commit: call Sync() and Close(). Wait for
//   every handle before that, and before the memory goes.
// Threads: a FileSystem may be used by many threads at once. Reads, and all of
//   a ScratchFile, may be used by many threads on one file; a WritableFile
//   belongs to one thread. Handles are done in any order.
// Failures: Error with the path: kNotFound (no such file), kDataLoss (the file
//   ends before the range), kResourceExhausted (no space, too many
//   descriptors), kInvalidArgument (exists already), kUnavailable (any other
//   failure of the OS). Start... throw nothing of that: Wait() does.

#ifndef MUONSTORE_FILE_SYSTEM_H_
#define MUONSTORE_FILE_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "muonstore/pending.h"

namespace muonstore {

// Transfers whose offset, size and memory are multiples of it can go around the
// page cache.
inline constexpr uint64_t kIoBlockBytes = 4096;

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
  // The same, done when the handle is.
  virtual PendingPtr StartRead(uint64_t offset_bytes, std::span<std::byte> out);
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
  // The same, done when the handle is.
  virtual PendingPtr StartWrite(uint64_t offset_bytes,
                                std::span<const std::byte> data);
  // Takes the room of a file of this size, which lets asynchronous writes run
  // beside one another; zeros where nothing is written later. May do nothing.
  virtual void Preallocate(uint64_t size_bytes);
  // fsync: what was written survives a power loss.
  virtual void Sync() = 0;
  virtual void Close() = 0;
};

// Room of a fixed size on a disk, zero at first. It has no name: nothing is
// left of it however the process ends.
class ScratchFile {
 public:
  virtual ~ScratchFile() = default;
  ScratchFile() = default;
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  // For messages: the directory, and that it is a scratch file.
  virtual const std::string& path() const = 0;
  virtual uint64_t size_bytes() const = 0;
  // Offset, size and memory are multiples of kIoBlockBytes and the range is
  // inside, or Error(kInvalidArgument) at once.
  virtual PendingPtr StartRead(uint64_t offset_bytes,
                               std::span<std::byte> out) = 0;
  virtual PendingPtr StartWrite(uint64_t offset_bytes,
                                std::span<const std::byte> data) = 0;
};

// How much of some memory the system knows in advance, so that transfers need
// not look its pages up again.
struct IoMemoryReport {
  uint64_t registered_bytes = 0;
  uint64_t total_bytes = 0;
  // Empty, or why not all of it is registered.
  std::string shortfall;
};

// Keeps memory registered until it is destroyed, which must be before the
// memory goes. The file system may go first.
class IoMemory {
 public:
  virtual ~IoMemory() = default;
  IoMemory() = default;
  IoMemory(const IoMemory&) = delete;
  IoMemory& operator=(const IoMemory&) = delete;

  virtual const IoMemoryReport& report() const = 0;
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
  // The same for large files that are read or written once: asynchronous
  // transfers of whole blocks go around the page cache where the file system
  // can do that. Where it cannot, the log says so, once, and they go through
  // it.
  virtual std::unique_ptr<RandomAccessFile> OpenForDirectRead(
      const std::string& path);
  virtual std::unique_ptr<WritableFile> CreateDirectFile(
      const std::string& path);
  // All of its room is taken here: Error(kResourceExhausted) where it is not
  // there, never later. `size_bytes` is a multiple of kIoBlockBytes.
  virtual std::unique_ptr<ScratchFile> CreateScratchFile(
      const std::string& directory, uint64_t size_bytes) = 0;
  // Memory that many transfers will use. Where not all of it can be registered,
  // the rest works as well, only slower.
  virtual std::unique_ptr<IoMemory> RegisterMemory(std::span<std::byte> memory);
  // Nothing there is nullopt; links are followed.
  virtual std::optional<FileStatus> Stat(const std::string& path) = 0;
  // Names (without "." and ".."), sorted bytewise.
  virtual std::vector<std::string> List(const std::string& directory) = 0;
  // False where this user has no right to read the directory or what is in it
  // (lost+found).
  virtual bool MayList(const std::string& /*directory*/) { return true; }
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

// The operating system's files. Asynchronous transfers of one such object share
// a queue, by io_uring or, where the kernel refuses that, by a few threads; it
// is made at the first of them: in a process that forks, after the fork.
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
