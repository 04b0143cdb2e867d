// The seam behind which dense matrix products run.
//
// What: C = alpha op(A) op(B) + beta C on row-major matrices, f32 or bf16
//   operands, sums and C in f32.
// Bits: a call runs on the calling thread alone, so that they depend on the
//   call's sizes, leading dimensions and values only; with beta == 0 the old C
//   is never read.
// Ownership: operands belong to the caller; C overlaps neither A nor B.
// Threads: const and safe to call from many threads at once. Nothing of the
//   caller's OpenMP settings is changed.
// Failures: Error(kInternal) when the library refuses a product.

#ifndef MUONSTORE_SRC_KERNEL_GEMM_H_
#define MUONSTORE_SRC_KERNEL_GEMM_H_

#include <cstdint>
#include <string>

namespace muonstore {

// The upper half of a float.
struct BF16 {
  uint16_t bits = 0;
};

template <typename T>
struct GemmOperand {
  const T* data = nullptr;
  int64_t ld = 0;           // Elements from one stored row to the next.
  bool transposed = false;  // op(A) is the transpose of what is stored.
};

template <typename T>
struct GemmCall {
  int64_t m = 0;  // Rows of op(A) and C.
  int64_t n = 0;  // Columns of op(B) and C.
  int64_t k = 0;  // Columns of op(A), rows of op(B).
  GemmOperand<T> a;
  GemmOperand<T> b;
  float* c = nullptr;
  int64_t ldc = 0;
  float alpha = 1;
  float beta = 0;
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  // Library, version and instruction set, for reports.
  virtual std::string name() const = 0;
  virtual void Multiply(const GemmCall<float>& call) const = 0;
  virtual void Multiply(const GemmCall<BF16>& call) const = 0;
};

// The one implementation that suits this processor.
const Gemm& DefaultGemm();

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_GEMM_H_
