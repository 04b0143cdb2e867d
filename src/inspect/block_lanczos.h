// Largest eigenvalues of A^T A (or A A^T) of a large matrix, by block Lanczos.
//
// What: a Krylov space is built from a block of four random vectors with full
//   reorthogonalization, and the projected problem is solved exactly. The
//   iteration stops when every wanted Ritz pair has a residual below 1e-8 of
//   its value (or 1e-14 of the largest). A residual bounds the error of an
//   eigenvalue, so sigma_1 is right to 1e-8. Up to four equal values are told
//   apart.
// Determinism: the start block comes from a fixed seed; the same matrix gives
//   the same bits.
// Memory: kMaxBasis doubles for each entry of the smaller side, at most.
// Threads: pure functions, one thread.
// Failures: none; `converged` is false when the space reached its limit, and
//   the values are then lower bounds with the stated residual.

#ifndef MUONSTORE_SRC_INSPECT_BLOCK_LANCZOS_H_
#define MUONSTORE_SRC_INSPECT_BLOCK_LANCZOS_H_

#include <cstdint>
#include <vector>

#include "src/inspect/gram.h"

namespace muonstore {

inline constexpr int64_t kMaxBasis = 480;
// Below this many rows or columns the space could fill the whole room.
inline constexpr int64_t kMinLanczosSide = 64;

struct LanczosResult {
  std::vector<double> eigenvalues;  // Descending, of the Gram matrix.
  double residual = 0;              // Largest of the wanted pairs.
  bool converged = false;
};

// `count` <= 16 eigenvalues; smaller_side() >= kMinLanczosSide.
LanczosResult LargestGramEigenvalues(const MatrixRef& matrix, int64_t count);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_INSPECT_BLOCK_LANCZOS_H_
