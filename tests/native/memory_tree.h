// A folder held in memory, to be damaged and read many times.
//
// What: a FileSystem of paths and byte strings, for reading only.
// Ownership: owns its bytes.
// Threads: const use on many threads.
#ifndef MUONSTORE_TESTS_NATIVE_MEMORY_TREE_H_
#define MUONSTORE_TESTS_NATIVE_MEMORY_TREE_H_

#include <map>
#include <memory>
#include <string>

#include "tests/testutil/forwarding_file_system.h"

namespace muonstore::native {

class MemoryTree final : public testutil::ForwardingFileSystem {
 public:
  MemoryTree() : ForwardingFileSystem(nullptr) {}
  // The files of a real folder; their paths stay.
  static std::shared_ptr<MemoryTree> Load(const std::string& directory);

  // By path.
  std::map<std::string, std::string> files;

  std::unique_ptr<RandomAccessFile> OpenForRead(
      const std::string& path) override;
  std::optional<FileStatus> Stat(const std::string& path) override;
  std::vector<std::string> List(const std::string& directory) override;
  std::optional<std::string> ReadLink(const std::string& /*path*/) override {
    return std::nullopt;
  }
};

}  // namespace muonstore::native

#endif  // MUONSTORE_TESTS_NATIVE_MEMORY_TREE_H_
