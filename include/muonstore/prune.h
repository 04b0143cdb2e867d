// Removing old checkpoints from a root.
//
// What: keeps the newest native tags that are whole, the one that `latest`
//   names and those that links in the root lead to, and removes the older ones.
//   A link is no tag: it is neither counted nor followed. A tag goes by one
//   removal of its manifest: after a crash it is there whole, or it is no tag
//   any more and the next writer removes the rest. What cannot be read is never
//   removed.
// Ownership, threads: a plain function; it holds the root's lock.
// Failures: Error(kUnavailable) where another writer holds the root,
//   Error(kInvalidArgument) for fewer than one tag to keep.

#ifndef MUONSTORE_PRUNE_H_
#define MUONSTORE_PRUNE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "muonstore/file_system.h"

namespace muonstore {

struct PruneOptions {
  // Tags, the newest by step and then by time; at least 1.
  int32_t keep = 1;
  // Count and remove DeepSpeed's tags, too; otherwise they are left alone.
  bool other_formats = false;
};

// The tags that were removed, the oldest first.
std::vector<std::string> Prune(const std::shared_ptr<FileSystem>& fs,
                               const std::string& root,
                               const PruneOptions& options);

}  // namespace muonstore

#endif  // MUONSTORE_PRUNE_H_
