// Transposition of 16 x 16 elements of 32 bits in registers.
//
// What: what moves whole vectors between two row-major orders. Inline, so that
//   it is compiled for the instruction set of the function that uses it.
// Ownership, threads: pure. Failures: none.

#ifndef MUONSTORE_SRC_KERNEL_TRANSPOSE_H_
#define MUONSTORE_SRC_KERNEL_TRANSPOSE_H_

#include <array>
#include <cstdint>
#include <cstring>

#include "src/kernel/simd.h"

namespace muonstore {

inline constexpr int64_t kTransposeSide = 16;

using U32x16 = uint32_t __attribute__((vector_size(64)));
using Square16 = std::array<U32x16, 16>;

// Row `row` comes from `from`, which needs no alignment.
MUONSTORE_INLINE void LoadRow(Square16& square, size_t row, const void* from) {
  std::memcpy(&square[row], from, sizeof(U32x16));
}

// Shuffling row i with row i + 8 halves the distance between the elements of a
// column; four times makes columns rows.
MUONSTORE_INLINE void TransposeSquare(Square16& square) {
  for (int round = 0; round < 4; ++round) {
    Square16 next;
    for (size_t i = 0; i < 8; ++i) {
      next[2 * i] =
          __builtin_shufflevector(square[i], square[i + 8], 0, 16, 1, 17, 2, 18,
                                  3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      next[2 * i + 1] =
          __builtin_shufflevector(square[i], square[i + 8], 8, 24, 9, 25, 10,
                                  26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    square = next;
  }
}

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_TRANSPOSE_H_
