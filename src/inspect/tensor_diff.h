// Compares one tensor of two checkpoints, element by element.
//
// What equal means. Of one dtype: the same bits, so a NaN equals a NaN of the
//   same bits, and 0 differs from -0. Of two dtypes: the same values (64-bit
//   integers are not rounded; any NaN equals any NaN), or else after rounding
//   the wider to the narrower; the note says which. A tolerance makes elements
//   with |a - b| <= atol + rtol * |b| (and two NaNs) "close".
// Numbers: the relative difference is |a - b| / max(|a|, |b|); where only one
//   of the two is finite both differences are infinite.
// Memory: blocks of 2 MiB, whatever the tensor's size.
// Ownership: reads the caller's Checkpoints.
// Threads: one call, one thread.
// Failures: what reading throws.

#ifndef MUONSTORE_SRC_INSPECT_TENSOR_DIFF_H_
#define MUONSTORE_SRC_INSPECT_TENSOR_DIFF_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "muonstore/checkpoint.h"

namespace muonstore {

// Worst first.
enum class TensorVerdict {
  kOnlyInA,
  kOnlyInB,
  kShapeDiffers,
  kMissing,  // One of the two lacks elements.
  kDifferent,
  kClose,  // Within the tolerance.
  kEqualUpToDType,
  kEqual,
  kDerived,  // A weight that one stores and the other rounds its master to.
};
// "only in A", ..., "equal".
std::string_view TensorVerdictName(TensorVerdict verdict);
// True for verdicts that make the state a different one.
bool IsDifference(TensorVerdict verdict);

struct TensorDiff {
  TensorKey key;
  TensorVerdict verdict = TensorVerdict::kEqual;
  std::optional<Shape> shape_a;  // Absent where the tensor is.
  std::optional<Shape> shape_b;
  std::optional<DType> dtype_a;
  std::optional<DType> dtype_b;
  // Elements that differ, or that are outside of the tolerance, if one is set.
  int64_t num_different = 0;
  // Over those elements; absent where there are none and for dtypes that are
  // not real numbers.
  std::optional<double> max_abs;
  std::optional<double> max_rel;
  // The first of them in row-major order, with both values (as doubles, so
  // that integers beyond 2^53 may look alike).
  std::optional<int64_t> first_element;
  std::optional<double> first_a;
  std::optional<double> first_b;
  std::string note;
};

struct Tolerance {
  double rtol = 0;
  double atol = 0;

  bool exact() const { return rtol == 0 && atol == 0; }
};

// A tensor in its checkpoint.
struct TensorRef {
  const Checkpoint& checkpoint;
  size_t index;

  const CheckpointTensor& info() const { return checkpoint.tensors()[index]; }
};

TensorDiff DiffTensors(const TensorRef& a, const TensorRef& b,
                       const Tolerance& tolerance);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_INSPECT_TENSOR_DIFF_H_
