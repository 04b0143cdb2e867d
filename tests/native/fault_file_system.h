// A file system that fails at its n-th change, and can lose power there.
//
// What: passes everything on to the real one and counts the operations that
//   change something. The n-th fails; with `dies`, so does every later one, as
//   if the process were gone. LosePower() then takes back what no fsync had
//   made durable: bytes of files, names in folders.
// Ownership: owns its notes of what is not durable.
// Threads: one.
#ifndef MUONSTORE_TESTS_NATIVE_FAULT_FILE_SYSTEM_H_
#define MUONSTORE_TESTS_NATIVE_FAULT_FILE_SYSTEM_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/testutil/forwarding_file_system.h"

namespace muonstore::native {

class FaultFileSystem final : public testutil::ForwardingFileSystem {
 public:
  struct Fault {
    int64_t at = -1;     // Counted from 0; -1: never.
    bool dies = false;   // All that follows fails, too.
    bool tears = false;  // A failing write writes its first half.
  };

  explicit FaultFileSystem(Fault fault)
      : ForwardingFileSystem(PosixFileSystem()), fault_(fault) {}

  int64_t num_changes() const { return num_changes_; }
  // Afterwards the files are what a machine finds when it starts again.
  void LosePower();

  // Throws where the next change is the one to fail.
  void Count(const std::string& path);
  bool tears_next() const { return fault_.tears && num_changes_ == fault_.at; }
  void NoteBytes(const std::string& path) { bytes_lost_.insert({path, true}); }
  void NoteSync(const std::string& path) { bytes_lost_.erase(path); }

  std::unique_ptr<WritableFile> CreateFile(const std::string& path) override;
  void Rename(const std::string& from, const std::string& to) override;
  void Remove(const std::string& path) override;
  void CreateDirectories(const std::string& path) override;
  void RemoveDirectory(const std::string& path) override;
  void SyncDirectory(const std::string& path) override;

 private:
  // How to take back a change of names in a folder.
  using Undo = std::function<void()>;

  void NoteName(const std::string& path, Undo undo);

  Fault fault_;
  int64_t num_changes_ = 0;
  std::map<std::string, bool> bytes_lost_;           // Written and not synced.
  std::vector<std::pair<std::string, Undo>> names_;  // By folder, in order.
};

}  // namespace muonstore::native

#endif  // MUONSTORE_TESTS_NATIVE_FAULT_FILE_SYSTEM_H_
