// Floats in two halves of 16 bits, one of which is a bf16 operand.
//
// What: bits(x) = upper * 2^16 + lower, lower signed. `upper` is x rounded to
//   the nearest bf16 (halfway cases up in magnitude), so that products read it
//   alone while nothing of x is lost: 4 bytes an element where f32 beside bf16
//   would be 6, and these passes are bound by memory.
// Ownership: views that do not overlap. Threads: pure. Failures: none; values
//   are finite and below the largest bf16.

#ifndef MUONSTORE_SRC_KERNEL_SPLIT_FLOAT_H_
#define MUONSTORE_SRC_KERNEL_SPLIT_FLOAT_H_

#include <cstdint>

#include "src/kernel/matrix_passes.h"

namespace muonstore {

// A part of a matrix in halves; rows of both are `ld` elements apart.
struct SplitBlock {
  BF16* upper = nullptr;
  int16_t* lower = nullptr;
  int64_t ld = 0;
};

// in * scale, computed in double and rounded once to f32.
void ScaleSplitInto(const Block<const float>& in, double scale,
                    const SplitBlock& out);

// x = a * x + product, in place.
void AddScaledSplit(const SplitBlock& x, const Block<const float>& product,
                    float a);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_SPLIT_FLOAT_H_
