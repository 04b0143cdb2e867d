// How one matrix is orthogonalized: sides, form, tile grid, memory.
//
// What: everything here follows from the matrix's shape, the options and how
//   fast the processor multiplies bf16, never from the number of threads: that
//   is what keeps results the same.
// Ownership, threads: plain values and pure functions.
// Failures: none.

#ifndef MUONSTORE_SRC_KERNEL_NEWTON_SCHULZ_PLAN_H_
#define MUONSTORE_SRC_KERNEL_NEWTON_SCHULZ_PLAN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "muonstore/newton_schulz.h"
#include "src/kernel/gemm.h"
#include "src/kernel/panels.h"

namespace muonstore {

// Rows [row_begin, row_end) and columns [col_begin, col_end).
struct Range2d {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t col_begin = 0;
  int64_t col_end = 0;

  int64_t rows() const { return row_end - row_begin; }
  int64_t cols() const { return col_end - col_begin; }
};

// Rows of a bf16 product that one call multiplies: the result is finished while
// it is in the cache.
inline constexpr int64_t kBF16Rows = 128;

// In the last two steps of a bf16 plan X is rounded, see bf16_iteration.cc.
inline constexpr size_t kNumRoundedSteps = 2;

// How many of the last products into Q the gram form computes whole.
inline constexpr size_t kNumWholeProducts = 2;

struct NewtonSchulzPlan {
  bool transposed = false;  // The matrix has more rows than columns.
  int64_t num_rows = 0;     // The smaller side.
  // Rows of X in memory: `num_rows`, for small sides rounded up with rows of
  // zeros. At the edges of a product libraries sum in another order, and equal
  // rows that come out unequal are what a small Gram matrix suffers from most.
  int64_t n = 0;
  int64_t m = 0;  // The larger side: columns of X.
  bool gram = false;
  bool bf16 = false;
  int64_t ld_x = 0;  // Of X.
  int64_t ld_n = 0;  // Of n x n matrices.
  // What covers the lower triangle of an n x n matrix. f32: blocks of columns,
  // each cut into pieces of rows; the blocks on the diagonal are computed
  // whole. bf16: large squares, so that X is read seldom; of those on the
  // diagonal only what ForEachTrianglePart gives is computed.
  std::vector<Range2d> triangle;
  int64_t panel_cols = 0;     // Columns of X that one task multiplies.
  int64_t max_tile_size = 0;  // Elements of the largest range of `triangle`.
  // Of bf16 operands: X, and n x n matrices, whose columns of one range of
  // `triangle` lie in one panel.
  Panels x_panels;
  Panels n_panels;

  int64_t num_panels() const { return (m + panel_cols - 1) / panel_cols; }

  // The tiles of a whole n x n matrix.
  int64_t num_whole_tasks() const;
  Range2d WholeTask(int64_t index) const;
};

// Calls body(part) for what one bf16 product each computes of a range of
// `triangle`.
template <typename Body>
void ForEachTrianglePart(const Range2d& range, const Body& body) {
  const bool diagonal = range.row_begin == range.col_begin;
  for (int64_t row = range.row_begin; row < range.row_end; row += kBF16Rows) {
    const int64_t row_end = std::min(range.row_end, row + kBF16Rows);
    body(Range2d{row, row_end, range.col_begin,
                 diagonal ? row_end : range.col_end});
  }
}

// Elements that the ranges of `triangle` compute.
double TriangleSize(const NewtonSchulzPlan& plan);

// `bf16_rate`: see Gemm::bf16_rate. Of the forms that the options allow it is
// the one that costs least (newton_schulz_cost.h).
NewtonSchulzPlan MakePlan(const NewtonSchulzOptions& options, int64_t rows,
                          int64_t cols, double bf16_rate);

// Where a matrix's working memory lies. Unused members are null.
struct NewtonSchulzBuffers {
  float* x = nullptr;  // n x m
  // X of bf16 plans in halves, see split_float.h.
  BF16* x_upper = nullptr;
  int16_t* x_lower = nullptr;
  // n x n, by use: Gram matrix, polynomial, accumulated product, spare.
  float* gram = nullptr;
  float* polynomial = nullptr;
  float* product = nullptr;
  float* spare = nullptr;
  BF16* gram_bf16 = nullptr;
  BF16* polynomial_bf16 = nullptr;
};

// A worker's own memory.
struct NewtonSchulzScratch {
  float* tile = nullptr;
  BF16* packed = nullptr;  // Of bf16 plans: an operand.
};

// Sizes of what all workers of a team share and of each worker's scratch.
int64_t SharedBytes(const NewtonSchulzPlan& plan);
int64_t ScratchBytes(const NewtonSchulzPlan& plan);
// `bytes` has SharedBytes and is aligned for vectors.
NewtonSchulzBuffers CarveBuffers(const NewtonSchulzPlan& plan,
                                 std::byte* bytes);
// The same for ScratchBytes.
NewtonSchulzScratch CarveScratch(const NewtonSchulzPlan& plan,
                                 std::byte* bytes);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_NEWTON_SCHULZ_PLAN_H_
