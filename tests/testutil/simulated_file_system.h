// A file system in memory that fails on demand and loses power.
//
// What: paths below `root` are on a simulated disk; every other path is read
//   from a base and never written. Every call counts as one operation, of
//   files, too; the n-th can be made to fail. After a loss of power every call
//   fails until Restart(), which leaves what a disk would.
// Ownership: files and locks keep the disk alive; those of before a restart are
//   dead.
// Threads: as FileSystem.
// Failures: Error as FileSystem gives it; a fault is kUnavailable, a lack of
//   space kResourceExhausted.
#ifndef MUONSTORE_TESTS_TESTUTIL_SIMULATED_FILE_SYSTEM_H_
#define MUONSTORE_TESTS_TESTUTIL_SIMULATED_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muonstore/file_system.h"
#include "tests/testutil/simulated_disk.h"

namespace muonstore::testutil {

enum class Fault {
  kError,       // Nothing is done; later calls work.
  kNoSpace,     // The same, as a full disk.
  kShortWrite,  // A write is half done and fails; other calls as kError.
  kPowerLoss,   // Nothing is done, and the power is gone.
  kTornWrite,   // A write is half done when the power goes.
};

class SimulatedFileSystem final : public FileSystem {
 public:
  SimulatedFileSystem(std::shared_ptr<FileSystem> base, std::string root);
  ~SimulatedFileSystem() override;

  // A file system of its own with the same disk, everything closed, no fault.
  std::shared_ptr<SimulatedFileSystem> Copy() const;

  int64_t num_operations() const;
  // The operation that comes `after` that many others fails.
  void FailAfter(int64_t after, Fault fault);
  // As on network file systems; Exchange() is then false.
  void HaveNoExchange();
  void LosePower();
  bool has_power() const;
  void Restart(uint64_t seed);
  // The content of every file, by path below the root; directories end in "/".
  std::map<std::string, std::string> Everything() const;

  std::unique_ptr<RandomAccessFile> OpenForRead(
      const std::string& path) override;
  std::unique_ptr<WritableFile> CreateFile(const std::string& path) override;
  // Its transfers are operations, too; it is gone after a restart.
  std::unique_ptr<ScratchFile> CreateScratchFile(const std::string& directory,
                                                 uint64_t size_bytes) override;
  std::optional<FileStatus> Stat(const std::string& path) override;
  std::vector<std::string> List(const std::string& directory) override;
  std::optional<std::string> ReadLink(const std::string& path) override;
  void Rename(const std::string& from, const std::string& to) override;
  void Remove(const std::string& path) override;
  void CreateDirectories(const std::string& path) override;
  void RemoveDirectory(const std::string& path) override;
  bool Exchange(const std::string& a, const std::string& b) override;
  uint64_t AvailableBytes(const std::string& path) override;
  std::unique_ptr<FileLock> TryLock(const std::string& path) override;
  void SyncDirectory(const std::string& path) override;

  // The disk and what happens to it; shared with files and locks.
  struct Machine;

 private:
  // The path on the disk; nullopt: it is the base's.
  std::optional<std::string> OnDisk(const std::string& path) const;
  // The same, where writing is asked for.
  std::string Writable(const std::string& path) const;

  std::shared_ptr<FileSystem> base_;
  std::string root_;
  std::shared_ptr<Machine> machine_;
};

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_TESTUTIL_SIMULATED_FILE_SYSTEM_H_
