// Copy operations merged into as few as possible.
//
// What: a collector that folds the copies of a sweep into strided operations as
//   they come, and the last merge over a whole plan.
// Ownership: a CopyCollector owns its operations.
// Threads: a CopyCollector belongs to one thread.
// Failures: none but std::bad_alloc.
#ifndef MUONSTORE_SRC_PARTITION_COPY_OPS_H_
#define MUONSTORE_SRC_PARTITION_COPY_OPS_H_

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "muonstore/copy_plan.h"

namespace muonstore {

class CopyCollector {
 public:
  // Adds a copy of one run. Copies with the same `pair` (the fragments that it
  // is from and to) continue one another where their distances are equal.
  void AddRun(uint64_t pair, const CopyOp& op);
  void AddSingle(const CopyOp& op) { ops_.push_back(op); }

  std::vector<CopyOp> Take() && { return std::move(ops_); }

 private:
  std::vector<CopyOp> ops_;
  std::unordered_map<uint64_t, size_t> open_;  // Last operation of a pair.
};

// The same copies, ascending by destination segment and offset, neighbours
// merged.
std::vector<CopyOp> MergeOps(std::vector<CopyOp> ops);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_PARTITION_COPY_OPS_H_
