// A native tag directory, opened: manifest, layout, and what is wrong.
#ifndef MUONSTORE_FORMATS_NATIVE_TAG_FILES_H_
#define MUONSTORE_FORMATS_NATIVE_TAG_FILES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/native/block_table.h"
#include "formats/native/layout.h"
#include "formats/native/manifest.h"
#include "muonstore/error.h"
#include "muonstore/file_system.h"

namespace muonstore::native {

struct TagFiles {
  std::shared_ptr<FileSystem> fs;
  std::string directory;
  Manifest manifest;
  std::optional<Layout> layout;
  std::optional<BlockTable> blocks;  // Absent where it is damaged.
  // What keeps the tensors from being read: missing files, wrong sizes, damaged
  // checksums.
  std::vector<Error> problems;
  // Of checkpoint.h5, which nothing of ours reads.
  std::vector<Error> view_problems;
  std::vector<std::string> extra_files;  // That the manifest does not name.
  int64_t num_files = 0;
  uint64_t size_bytes = 0;
  int64_t modified_ns = 0;  // Of the newest file.

  std::string rank_path(int32_t rank) const;
  std::string checksums_path() const;
  std::string carried_path(int32_t rank) const;
  // Where the view is now; it has its staged name until the commit is through.
  std::string view_path() const;
};

// Throws for the manifest; all else is listed. No payload is read.
TagFiles OpenTagFiles(std::shared_ptr<FileSystem> fs,
                      const std::string& directory);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_TAG_FILES_H_
