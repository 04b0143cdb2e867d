#include "src/kernel/symmetric_product.h"

#include <algorithm>

namespace muonstore {

void MultiplyTriangle(const NewtonSchulzPlan& plan, const Gemm& gemm,
                      const SymmetricFactors& factors, Team& team,
                      const TilePlace& place, const TileEpilogue& epilogue) {
  team.Run(static_cast<int64_t>(plan.triangle.size()), [&](int64_t task,
                                                           int /*worker*/) {
    const Range2d& range = plan.triangle[static_cast<size_t>(task)];
    const Block<float> tile = place(range);
    const int64_t b_offset =
        factors.b_transposed ? range.col_begin * factors.ld_b : range.col_begin;
    gemm.Multiply(GemmCall{.m = range.rows(),
                           .n = range.cols(),
                           .k = factors.k,
                           .a = factors.a + range.row_begin * factors.ld_a,
                           .lda = factors.ld_a,
                           .b = factors.b + b_offset,
                           .ldb = factors.ld_b,
                           .b_transposed = factors.b_transposed,
                           .c = tile.data,
                           .ldc = tile.ld});
    epilogue(range, tile);
  });
}

void MirrorRange(const Range2d& range, float* matrix, int64_t ld) {
  const int64_t square_end = std::min(range.row_end, range.col_end);
  const int64_t side = std::max<int64_t>(0, square_end - range.row_begin);
  MirrorSquare({matrix + range.row_begin * (ld + 1), ld, side, side});
  const int64_t below = std::max(range.row_begin, square_end);
  if (below < range.row_end) {
    TransposeInto(
        Block<const float>{.data = matrix + below * ld + range.col_begin,
                           .ld = ld,
                           .rows = range.row_end - below,
                           .cols = range.cols()},
        matrix + range.col_begin * ld + below, ld);
  }
}

}  // namespace muonstore
