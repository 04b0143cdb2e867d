// The files that were read last, kept open.
//
// Ownership: owns at most kMaxFiles files; what Get() gave stays open while it
// is
//   held.
// Threads: any.
// Failures: those of opening.
#ifndef MUONSTORE_FORMATS_NATIVE_OPEN_FILES_H_
#define MUONSTORE_FORMATS_NATIVE_OPEN_FILES_H_

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "muonstore/file_system.h"

namespace muonstore::native {

class OpenFiles {
 public:
  static constexpr size_t kMaxFiles = 16;

  // `fs` outlives it.
  explicit OpenFiles(FileSystem& fs) : fs_(fs) {}

  std::shared_ptr<RandomAccessFile> Get(const std::string& path) {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(path);
    if (found != files_.end()) return found->second;
    if (files_.size() >= kMaxFiles) files_.clear();
    std::shared_ptr<RandomAccessFile> file = fs_.OpenForDirectRead(path);
    files_.emplace(path, file);
    return file;
  }

 private:
  FileSystem& fs_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<RandomAccessFile>> files_;
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_OPEN_FILES_H_
