// Products that are known to be symmetric, at half the work.
//
// What: S = A B where S is symmetric (A A^T, or two polynomials of one
//   symmetric matrix). Only the tiles on and below the diagonal are multiplied;
//   an epilogue finishes each while it is in the cache, and mirrors it.
// Bits: the tiles follow from the plan alone. Above the diagonal S is a copy of
//   what is below.
// Ownership: views. Threads: one call uses the team's. Failures: see gemm.h.

#ifndef MUONSTORE_SRC_KERNEL_SYMMETRIC_PRODUCT_H_
#define MUONSTORE_SRC_KERNEL_SYMMETRIC_PRODUCT_H_

#include <cstdint>
#include <functional>

#include "src/kernel/gemm.h"
#include "src/kernel/matrix_passes.h"
#include "src/kernel/newton_schulz_plan.h"
#include "src/kernel/team.h"

namespace muonstore {

struct SymmetricFactors {
  const float* a = nullptr;  // n x k
  const float* b = nullptr;  // k x n, or n x k when transposed.
  int64_t ld_a = 0;
  int64_t ld_b = 0;
  int64_t k = 0;
  bool b_transposed = false;
};

// Where the tile of `range` goes.
using TilePlace = std::function<Block<float>(const Range2d& range)>;
// Called with each finished tile; what it writes must lie in the tile's own
// range and the range mirrored at the diagonal.
using TileEpilogue =
    std::function<void(const Range2d& range, const Block<float>& tile)>;

void MultiplyTriangle(const NewtonSchulzPlan& plan, const Gemm& gemm,
                      const SymmetricFactors& factors, Team& team,
                      const TilePlace& place, const TileEpilogue& epilogue);

// Copies what lies below the diagonal in `range` of the n x n `matrix` to where
// it is mirrored.
void MirrorRange(const Range2d& range, float* matrix, int64_t ld);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_SYMMETRIC_PRODUCT_H_
