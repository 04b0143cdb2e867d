// The door to checkpoints on disk: find, open, list, verify.
//
// What: a path may be a checkpoint root (a folder of tags), a tag directory, a
//   single torch.save file, or a Hugging Face or Lightning run folder that
//   holds one root. The format is detected; sources are never written, locked
//   or executed, and may be read-only.
// Ownership: the returned objects own what they need and keep the FileSystem.
// Threads: every function may be called from many threads.
// Failures: Error. kNotFound: nothing at the path. kInvalidArgument: the path
//   or tag is ambiguous or unknown (the message lists what there is).
//   kDataLoss, kUnsupported: what lies there cannot be read, and why.

#ifndef MUONSTORE_OPEN_H_
#define MUONSTORE_OPEN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/file_system.h"

namespace muonstore {

struct OpenOptions {
  // Which tag of a root; empty: the one that `latest` names, or the only one.
  std::string tag;
  // Open although elements are missing that the writer lost (a truncated
  // momentum); they stay listed, and reading them is an error.
  bool allow_loss = false;
  // Parse the files of rank 0 alone and take the other ranks by name and size:
  // info() and tensors() work, fragments() and reads are kInvalidArgument.
  bool headers_of_rank_zero_only = false;
};

std::unique_ptr<Checkpoint> OpenCheckpoint(std::shared_ptr<FileSystem> fs,
                                           const std::string& path,
                                           const OpenOptions& options = {});

// One tag of a root, by names and sizes and the headers of rank 0.
struct TagListing {
  std::string tag;
  std::optional<int64_t> step;
  std::optional<int32_t> stage;
  int32_t num_ranks = 0;
  uint64_t size_bytes = 0;
  int64_t modified_ns = 0;  // Newest file, since the Unix epoch; 0: unknown.
  bool complete = false;    // Nothing is missing, as far as was looked.
  // The format says how long each file is, and each is; without (DeepSpeed), a
  // file that was cut a little passes for whole.
  bool sizes_proven = false;
  std::vector<std::string> missing;  // What is absent, cut or unreadable.
  bool is_latest = false;
};

struct RootListing {
  std::string root;
  std::string latest;             // What `latest` names; empty: there is none.
  std::vector<TagListing> tags;   // By step, then by name.
  std::vector<Finding> findings;  // For example, `latest` names no tag.
};

RootListing ListTags(const std::shared_ptr<FileSystem>& fs,
                     const std::string& path);

struct VerifyOptions {
  std::string tag;
  bool quick = false;  // Names, sizes and directories only.
  // Of the tensors or files that one finding is about.
  size_t max_names = 5;
  // Told about bytes checked so far and bytes in all; may be empty.
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress = {};
};

struct VerifyReport {
  std::string path;  // The tag directory or file.
  std::string tag;
  int64_t num_files = 0;
  uint64_t size_bytes = 0;
  std::vector<Finding> findings;  // Every fault; not only the first.

  bool whole() const;  // No finding is a fault.
};

// Throws only when there is nothing to verify (no such path, tag or format).
VerifyReport VerifyCheckpoint(std::shared_ptr<FileSystem> fs,
                              const std::string& path,
                              const VerifyOptions& options = {});

}  // namespace muonstore

#endif  // MUONSTORE_OPEN_H_
