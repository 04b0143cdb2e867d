// What lies in a DeepSpeed tag directory, by names and sizes alone.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_TAG_DIRECTORY_H_
#define MUONSTORE_FORMATS_DEEPSPEED_TAG_DIRECTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "muonstore/error.h"
#include "muonstore/file_system.h"

namespace muonstore::deepspeed {

// A rank beyond this is a broken name, not a run.
inline constexpr int32_t kMaxRanks = 1 << 20;

struct TagDirectory {
  std::string path;
  bool bf16 = false;  // Optimizer files have the prefix bf16_.
  // Full paths by rank; an absent one is empty.
  std::vector<std::string> optim_files;
  std::vector<std::string> model_files;  // One, or by rank in stage 3.
  bool model_file_per_rank = false;
  std::string swap_directory;  // offloaded_tensors; empty: there is none.
  std::vector<std::string> extra_files;  // Names that belong to no rank.
  std::vector<Error> problems;  // Missing, doubled or unsupported files.
  int64_t num_files = 0;
  uint64_t size_bytes = 0;
  int64_t modified_ns = 0;  // Of the newest file.

  int32_t num_ranks() const { return static_cast<int32_t>(optim_files.size()); }
};

// True if the names look like a DeepSpeed tag directory.
bool IsTagDirectory(const std::vector<std::string>& names);

// Lists the directory; throws only if that fails. Numbers decide the order of
// ranks, never the text order of names.
TagDirectory ScanTagDirectory(FileSystem& fs, const std::string& path);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_TAG_DIRECTORY_H_
