// The two products that singular values need, over a row-major float matrix.
//
// What: the Gram matrix of the smaller side, and products of the matrix and of
//   its transpose with a thin block of vectors.
// Numbers: entries are float, every product and sum is double. Entries should
//   be scaled to a largest magnitude near 1.
// Ownership: views only; results are written to what the caller owns.
// Threads: pure functions, one thread each.
// Failures: none; sizes are the caller's duty.

#ifndef MUONSTORE_SRC_INSPECT_GRAM_H_
#define MUONSTORE_SRC_INSPECT_GRAM_H_

#include <cstdint>
#include <span>
#include <vector>

namespace muonstore {

// `rows` x `cols` floats, row-major.
struct MatrixRef {
  std::span<const float> values;
  int64_t rows = 0;
  int64_t cols = 0;

  int64_t smaller_side() const { return rows < cols ? rows : cols; }
};

// A A^T where rows <= cols, else A^T A: smaller_side() squared doubles.
std::vector<double> SmallerGram(const MatrixRef& matrix);

// Vectors of a block lie side by side: entry i of vector c is at i * kWidth
// + c.
inline constexpr int64_t kBlockWidth = 4;

// out += A^T x; `x` has rows, `out` cols entries a vector.
void AddTransposedProduct(const MatrixRef& matrix, std::span<const double> x,
                          std::span<double> out);

// out = A x; `x` has cols, `out` rows entries a vector.
void Product(const MatrixRef& matrix, std::span<const double> x,
             std::span<double> out);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_INSPECT_GRAM_H_
