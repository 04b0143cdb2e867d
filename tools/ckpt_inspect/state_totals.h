// How much state of each kind and dtype a checkpoint holds.
#ifndef MUONSTORE_TOOLS_CKPT_INSPECT_STATE_TOTALS_H_
#define MUONSTORE_TOOLS_CKPT_INSPECT_STATE_TOTALS_H_

#include <cstdint>
#include <vector>

#include "muonstore/checkpoint.h"

namespace muonstore::tools {

struct StateTotal {
  StateKind kind;
  DType dtype = DType::kF32;
  int64_t num_tensors = 0;
  int64_t num_elements = 0;
  uint64_t stored_bytes = 0;  // Over all ranks, replicas counted.
};

// By kind (masters first, then the moments, weights, buffers, others), then by
// dtype.
std::vector<StateTotal> StateTotals(const Checkpoint& checkpoint);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_INSPECT_STATE_TOTALS_H_
