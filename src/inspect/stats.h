// Statistics of every matrix of chosen tensors, and which of them look ill.
//
// What: resolves each tensor's layout to matrices, computes MatrixStats of
//   each, sets it beside the same matrix of the masters and of another
//   checkpoint, and flags what is suspicious.
// Memory: one matrix a thread (as float), plus pieces of a few MiB.
// Ownership: reads the caller's Checkpoints; reports are plain values.
// Threads: ComputeStats runs `jobs` threads, each on a matrix of its own.
// Failures: Error(kInvalidArgument) naming tensor, shape and sizes where the
//   layout does not fit; what reading throws. A tensor without all its elements
//   and a dtype without a meaning as real numbers are reports, not errors.

#ifndef MUONSTORE_SRC_INSPECT_STATS_H_
#define MUONSTORE_SRC_INSPECT_STATS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/matrix_layout.h"
#include "src/inspect/matrix_stats.h"
#include "src/inspect/parallel.h"

namespace muonstore {

// In order of alarm.
enum class MatrixFlag {
  kMissing,    // The checkpoint does not hold all elements; no statistics.
  kNonFinite,  // An infinity or NaN.
  kZero,       // Every element is zero.
  kIdentical,  // Bitwise the other checkpoint's values: nothing moved.
  kDenormal,   // More than half of the nonzero elements are denormal.
};
// "missing", "nonfinite", "zero", "identical", "denormal".
std::string_view MatrixFlagName(MatrixFlag flag);
std::optional<MatrixFlag> ParseMatrixFlag(std::string_view name);

struct MatrixReport {
  TensorKey key;
  DType dtype = DType::kF32;
  int64_t matrix = 0;        // Which of the parameter's matrices, from 0.
  int64_t num_matrices = 1;  // That the layout gives.
  MatrixView view;
  // Absent where the matrix could not be computed; `note` says why.
  std::optional<MatrixStats> stats;
  std::optional<double> ratio_to_master;  // Frobenius norms.
  // With the other checkpoint's matrix: the angle, and norm here / norm there.
  std::optional<double> cosine;
  std::optional<double> norm_ratio;
  std::vector<MatrixFlag> flags;  // Ascending.
  std::string note;

  bool Has(MatrixFlag flag) const;
};

struct StatsRequest {
  std::vector<size_t> tensors;  // Indices into checkpoint.tensors().
  // Of all of them; absent: what the checkpoint records of each, whole where it
  // records nothing.
  std::optional<MatrixLayout> layout;
  const Checkpoint* other = nullptr;
  int64_t num_singular_values = 3;
  int32_t jobs = 1;
  ProgressCallback progress = {};
};

// In the order of the tensors, then of their matrices.
std::vector<MatrixReport> ComputeStats(const Checkpoint& checkpoint,
                                       const StatsRequest& request);

// Worst first: by the most alarming flag; then those whose norm is more than
// twice or less than half of the other checkpoint's, the furthest first; then
// those whose ratio to the master's norm is further than a factor of 10 from
// the median of at least three, the furthest first; then by the stable rank as
// a part of the smaller side, ascending (a momentum that has collapsed onto few
// directions), then by the ratio to the master's norm, descending. Equals keep
// their order.
void SortWorstFirst(std::vector<MatrixReport>& reports);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_INSPECT_STATS_H_
