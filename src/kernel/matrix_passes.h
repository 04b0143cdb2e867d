// Loops over the rows and blocks of matrices between two products.
//
// What: loading with a scale, polynomials of matrices, rounding to bf16 and
//   copying blocks transposed. f32, every multiply-add is one fma.
// Ownership: views; inputs and outputs must not overlap unless said.
// Threads: pure; call from many threads on disjoint parts.
// Failures: none; sizes are the caller's duty.

#ifndef MUONSTORE_SRC_KERNEL_MATRIX_PASSES_H_
#define MUONSTORE_SRC_KERNEL_MATRIX_PASSES_H_

#include <cstdint>

#include "src/kernel/gemm.h"

namespace muonstore {

// A part of a row-major matrix; rows are `ld` elements apart.
template <typename T>
struct Block {
  T* data = nullptr;
  int64_t ld = 0;
  int64_t rows = 0;
  int64_t cols = 0;
};

// The sum of squares in double, in an order that depends on the sides only.
// Not finite when an element is not.
double SumOfSquares(const Block<const float>& block);

// out = in * scale, computed in double and rounded once.
void ScaleInto(const Block<const float>& in, double scale, float* out,
               int64_t out_ld);
// The same with out transposed: in.cols rows of in.rows elements.
void ScaleTransposedInto(const Block<const float>& in, double scale, float* out,
                         int64_t out_ld);

void CopyInto(const Block<const float>& in, float* out, int64_t out_ld);
void TransposeInto(const Block<const float>& in, float* out, int64_t out_ld);

// To nearest even.
void RoundInto(const Block<const float>& in, BF16* out, int64_t out_ld);
// The same with out transposed.
void RoundTransposedInto(const Block<const float>& in, BF16* out,
                         int64_t out_ld);
// Copies what is below the diagonal to where it is mirrored.
void MirrorSquare(const Block<float>& square);

// square = c * square + b * base, in place.
void CombineSquare(const Block<float>& square, const float* base,
                   int64_t base_ld, float b, float c);
void CombineSquare(const Block<float>& square, const BF16* base,
                   int64_t base_ld, float b, float c);
// x = a * x + product, in place.
void AddScaled(const Block<float>& x, const float* product, int64_t product_ld,
               float a);
// product = a * x + product, in place.
void AddScaledTo(const Block<float>& product, const float* x, int64_t x_ld,
                 float a);
void AddScaledTo(const Block<float>& product, const BF16* x, int64_t x_ld,
                 float a);
// out = a * x + product.
void AddScaledInto(const Block<const float>& product, const BF16* x,
                   int64_t x_ld, float a, float* out, int64_t out_ld);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_MATRIX_PASSES_H_
