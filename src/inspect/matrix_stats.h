// Statistics of one matrix.
//
// What: norms, extremes, counts of special values, singular values and the
//   stable rank of a matrix read in pieces, and its angle to another matrix.
// Numbers: sums in double, scaled by powers of two so that no square overflows
//   or vanishes, whatever the magnitude. Norms, minimum and maximum are of the
//   finite elements. Singular values: see singular_values.h; the matrix is
//   rounded to float for them, which only changes 64-bit types.
// Memory: pieces of 2 MiB; singular values hold the matrix once as float.
// Threads: pure functions, one thread.
// Failures: what the reader throws.

#ifndef MUONSTORE_SRC_INSPECT_MATRIX_STATS_H_
#define MUONSTORE_SRC_INSPECT_MATRIX_STATS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "src/inspect/matrix_reader.h"

namespace muonstore {

struct MatrixIndex {
  int64_t row = 0;
  int64_t col = 0;

  friend bool operator==(const MatrixIndex&, const MatrixIndex&) = default;
};

struct MatrixStats {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t num_nonfinite = 0;
  std::optional<MatrixIndex> first_nonfinite;
  int64_t num_zero = 0;
  int64_t num_denormal = 0;  // In the stored dtype; zeros not counted.
  double frobenius = 0;
  std::optional<double> min;  // Absent without a finite element.
  std::optional<double> max;
  // Descending; empty for an empty matrix and where an element is not finite.
  std::vector<double> singular_values;
  bool singular_values_converged = true;
  // |A|_F^2 / sigma_1^2; 0 for a zero matrix; absent like singular_values.
  std::optional<double> stable_rank;

  int64_t num_elements() const { return rows * cols; }
  double rms() const;  // Of the finite elements; 0 without any.
  double zero_fraction() const;
  double denormal_fraction() const;
  double largest_magnitude() const;
};

// Everything but singular values and stable rank.
MatrixStats BasicStats(MatrixReader& reader);

// With up to `num_singular_values` (1 to kMaxSingularValues).
MatrixStats ComputeMatrixStats(MatrixReader& reader,
                               int64_t num_singular_values);

struct MatrixComparison {
  // Absent where a norm is 0 or an element is not finite.
  std::optional<double> cosine;
  std::optional<double> norm_ratio;  // |a| / |b|; absent like the cosine.
  bool identical = false;  // The same bits after widening, in every element.
};

// Two matrices of one size.
MatrixComparison CompareMatrices(MatrixReader& a, MatrixReader& b);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_INSPECT_MATRIX_STATS_H_
