// Do two checkpoints hold the same state?
//
// What: compares by tensor key, so that stage, rank count, offload, format and
//   stored order do not matter, then hyper-parameters, steps, counters and the
//   momentum's unit. Stage, ranks, offload, producer and the path never make a
//   difference; tensor_diff.h and state_diff.h say what does. The compute
//   weight of a trainable parameter is round(master): stored by one checkpoint
//   only, it is a note, unless the other should store it and does not. A tensor
//   without elements is equal to one that is not there.
// Memory: two blocks a thread, plus both tensor lists; the worst
//   `max_listed` tensors are kept, the rest is counted.
// Ownership: reads the caller's Checkpoints; the report is a plain value.
// Threads: DiffCheckpoints runs `jobs` threads, each on a tensor of its own.
// Failures: what reading throws.

#ifndef MUONSTORE_SRC_INSPECT_DIFF_H_
#define MUONSTORE_SRC_INSPECT_DIFF_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "muonstore/checkpoint.h"
#include "src/inspect/parallel.h"
#include "src/inspect/state_diff.h"
#include "src/inspect/tensor_diff.h"

namespace muonstore {

struct DiffOptions {
  // Which tensors to compare; empty: all, and everything besides tensors, too.
  // With a selection only its tensors count (and the momentum's unit, where
  // momentum is among them).
  std::function<bool(const CheckpointTensor&)> select = {};
  Tolerance tolerance;
  size_t max_listed = 20;
  int32_t jobs = 1;
  ProgressCallback progress = {};
};

inline constexpr size_t kNumTensorVerdicts = 9;

struct DiffReport {
  std::array<int64_t, kNumTensorVerdicts> counts{};
  // Those that differ or are close: by verdict, then by relative and absolute
  // difference.
  std::vector<TensorDiff> worst;
  // Tensors that are equal in another way than bit for bit: how, and how many.
  std::map<std::string, int64_t> notes;
  std::vector<ValueDiff> values;

  int64_t count(TensorVerdict verdict) const {
    return counts[static_cast<size_t>(verdict)];
  }
  int64_t num_tensors() const;
  // Nothing that counts differs.
  bool same_state() const;
};

DiffReport DiffCheckpoints(const Checkpoint& a, const Checkpoint& b,
                           const DiffOptions& options);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_INSPECT_DIFF_H_
