// The largest singular values of one matrix.
//
// What: up to 512 on the smaller side, all eigenvalues of the Gram matrix in
//   double; above, block Lanczos until the residual is small (block_lanczos.h).
// Accuracy: sigma_1 to a relative 1e-8. Other values to 1e-8 * sigma_1^2 /
//   sigma_i (going through the Gram matrix squares the condition), and values
//   below 1e-7 * sigma_1 are reported as 0: float input does not hold them.
//   Above 512, five and more equal values count as four.
// Determinism: the same matrix gives the same bits, whatever runs beside it.
// Ownership: reads the caller's matrix.
// Threads: pure functions, one thread.
// Failures: Error(kInvalidArgument) for sizes that do not fit.

#ifndef MUONSTORE_SRC_INSPECT_SINGULAR_VALUES_H_
#define MUONSTORE_SRC_INSPECT_SINGULAR_VALUES_H_

#include <cstdint>
#include <vector>

#include "src/inspect/gram.h"

namespace muonstore {

inline constexpr int64_t kMaxSingularValues = 16;
inline constexpr int64_t kExactSide = 512;

struct SingularValues {
  std::vector<double> values;  // Descending; min(count, rows, cols) of them.
  // False when Lanczos ran out of room; the values are then lower bounds.
  bool converged = true;
};

// Entries are finite, with a largest magnitude near 1 unless all are zero.
// 1 <= count <= kMaxSingularValues.
SingularValues TopSingularValues(const MatrixRef& matrix, int64_t count);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_INSPECT_SINGULAR_VALUES_H_
