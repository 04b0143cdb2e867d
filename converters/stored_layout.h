// How a checkpoint cuts its masters, found from where their elements lie.
//
// What: the trainable parameters in the order of the file, and the flat groups
//   that hold them. It needs no knowledge of the format.
// Ownership: plain values.
// Threads: pure functions of the checkpoint's tables.
// Failures: Error(kUnsupported) for masters that no ZeRO rule cuts like this.

#ifndef MUONSTORE_CONVERTERS_STORED_LAYOUT_H_
#define MUONSTORE_CONVERTERS_STORED_LAYOUT_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/parameter.h"
#include "muonstore/partitioning.h"

namespace muonstore {

struct StoredLayout {
  // Flat group by flat group in flat order, then parameters without elements.
  std::vector<ParameterSpec> specs;
  // Empty where the checkpoint has no flat groups.
  std::vector<FlatGroup> groups;
};

// Of the parameters that have a master and a param group.
StoredLayout StoredLayoutOf(const Checkpoint& checkpoint);

// The sub-group size that gives these flat groups of a stage-3 checkpoint: the
// largest that fits; `default_size` where nothing was closed.
int64_t SubGroupSizeOf(const StoredLayout& layout, int32_t num_ranks,
                       int64_t default_size);
// Whether DeepSpeed closes its sub-groups just so with this size.
bool HasSubGroupSize(const StoredLayout& layout, int32_t num_ranks,
                     int64_t size);

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_STORED_LAYOUT_H_
