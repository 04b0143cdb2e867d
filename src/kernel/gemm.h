// The seam behind which dense matrix products run.
//
// What: C = A B or C = A B^T on row-major matrices; f32 or bf16 operands, sums
//   and C in f32.
// Bits: a call runs on the calling thread alone, so that they depend on the
//   call's sizes, leading dimensions and values only. The old C is never read.
// Ownership: operands belong to the caller; C overlaps neither A nor B.
// Threads: const and safe to call from many threads at once. Nothing of the
//   caller's OpenMP settings is changed.
// Failures: Error(kInternal) when the library refuses a product.

#ifndef MUONSTORE_SRC_KERNEL_GEMM_H_
#define MUONSTORE_SRC_KERNEL_GEMM_H_

#include <cstdint>
#include <memory>
#include <string>

namespace muonstore {

// The upper half of a float.
struct BF16 {
  uint16_t bits = 0;
};

// `ld` is the number of elements from one stored row to the next.
template <typename T>
struct GemmCall {
  int64_t m = 0;  // Rows of A and C.
  int64_t n = 0;  // Columns of C.
  int64_t k = 0;  // Columns of A.
  const T* a = nullptr;
  int64_t lda = 0;
  const T* b = nullptr;
  int64_t ldb = 0;
  bool b_transposed = false;  // B is stored as n x k.
  float* c = nullptr;
  int64_t ldc = 0;
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  // Library, version and instruction set, for reports.
  virtual std::string name() const = 0;
  virtual void Multiply(const GemmCall<float>& call) const = 0;
  virtual void Multiply(const GemmCall<BF16>& call) const = 0;
};

// The implementation that suits this processor.
std::unique_ptr<Gemm> MakeGemm();

// Widens bf16 operands and gives them to `inner`'s f32 product: the same sums,
// for processors that do not multiply bf16.
std::unique_ptr<Gemm> MakeWideningGemm(std::unique_ptr<Gemm> inner);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_GEMM_H_
