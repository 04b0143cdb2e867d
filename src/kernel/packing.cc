#include "src/kernel/packing.h"

#include <cstring>

#include "src/kernel/simd.h"
#include "src/kernel/transpose.h"

namespace muonstore {
namespace {

using U16x32 = uint16_t __attribute__((vector_size(64)));

// 32 columns of a pair of rows.
MUONSTORE_INLINE void InterleavePair(const BF16* even, const BF16* odd,
                                     BF16* packed) {
  U16x32 first;
  U16x32 second;
  std::memcpy(&first, even, sizeof(first));
  std::memcpy(&second, odd, sizeof(second));
  const U16x32 low = __builtin_shufflevector(
      first, second, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8,
      40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47);
  const U16x32 high = __builtin_shufflevector(
      first, second, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23,
      55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63);
  std::memcpy(static_cast<void*>(packed), &low, sizeof(low));
  std::memcpy(static_cast<void*>(packed + 32), &high, sizeof(high));
}

}  // namespace

MUONSTORE_SIMD
void PackRows(const Block<const BF16>& matrix, BF16* packed) {
  for (int64_t col = 0; col < matrix.cols; col += 32) {
    BF16* to = packed + col / kPackedCols * kPackedCols * matrix.rows +
               col % kPackedCols * 2;
    const BF16* from = matrix.data + col;
    for (int64_t i = 0; i < matrix.rows; i += 2) {
      InterleavePair(from + i * matrix.ld, from + (i + 1) * matrix.ld,
                     to + i * kPackedCols);
    }
  }
}

MUONSTORE_SIMD
void PackTransposed(const Block<const BF16>& matrix, BF16* packed) {
  // A row of 32 elements is 16 pairs, which stay together.
  for (int64_t row = 0; row < matrix.rows; row += kTransposeSide) {
    BF16* to = packed + row / kPackedCols * kPackedCols * matrix.cols +
               row % kPackedCols * 2;
    for (int64_t col = 0; col < matrix.cols; col += kPanelRows) {
      Square16 square;
      for (size_t i = 0; i < square.size(); ++i) {
        LoadRow(
            square, i,
            matrix.data + (row + static_cast<int64_t>(i)) * matrix.ld + col);
      }
      TransposeSquare(square);
      for (size_t i = 0; i < square.size(); ++i) {
        const int64_t pair = col / 2 + static_cast<int64_t>(i);
        std::memcpy(static_cast<void*>(to + pair * 2 * kPackedCols), &square[i],
                    sizeof(U32x16));
      }
    }
  }
}

}  // namespace muonstore
