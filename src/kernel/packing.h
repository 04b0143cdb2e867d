// The second operand of a packed product, in the order the processor takes it.
//
// What: B (k x n, bf16) as blocks of 64 columns, of 32 rows each, of 16 pairs
// of
//   rows: element (i, j) lies at
//     ((j / 64) * k + i / 32 * 32) * 64 + (i % 32 / 2) * 128 + j % 64 * 2 + i
//     % 2.
//   oneDNN calls it BA16a64b2a; the products of AMX and AVX512_BF16 take it.
//   k and n are multiples of 32. Where n is no multiple of 64, what lies behind
//   the last 32 columns is not written. Columns from a multiple of 64 on are a
//   packed operand of their own.
// Ownership: views that do not overlap. Threads: pure. Failures: none.

#ifndef MUONSTORE_SRC_KERNEL_PACKING_H_
#define MUONSTORE_SRC_KERNEL_PACKING_H_

#include <cstdint>

#include "src/kernel/matrix_passes.h"
#include "src/kernel/panels.h"

namespace muonstore {

inline constexpr int64_t kPackedCols = 64;
inline constexpr int64_t kPanelRows = 32;

inline int64_t PackedSize(int64_t num_rows, int64_t num_cols) {
  return num_rows * RoundUp(num_cols, kPackedCols);
}

// B is `matrix`.
void PackRows(const Block<const BF16>& matrix, BF16* packed);
// B is the transpose of `matrix`.
void PackTransposed(const Block<const BF16>& matrix, BF16* packed);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_PACKING_H_
