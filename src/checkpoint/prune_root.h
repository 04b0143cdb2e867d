// Pruning under a lock that is held already.

#ifndef MUONSTORE_SRC_CHECKPOINT_PRUNE_ROOT_H_
#define MUONSTORE_SRC_CHECKPOINT_PRUNE_ROOT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "src/os/output_root.h"

namespace muonstore {

struct PruneRootOptions {
  int32_t keep = 1;
  bool other_formats = false;
  // Stays whatever its step is; may be empty.
  std::string protect;
};

// See muonstore/prune.h.
std::vector<std::string> PruneRoot(os::OutputRoot& root,
                                   const PruneRootOptions& options);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_CHECKPOINT_PRUNE_ROOT_H_
