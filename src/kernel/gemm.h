// The seam behind which dense matrix products run.
//
// What: C = A B or C = A B^T on row-major f32 matrices, and C = A B or C += A B
//   on bf16 operands of which B is packed; sums and C are f32.
// Bits: a call runs on the calling thread alone, so that they depend on the
//   call's sizes, leading dimensions and values only. The old C is read only
//   where it is added to.
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
struct GemmCall {
  int64_t m = 0;  // Rows of A and C.
  int64_t n = 0;  // Columns of C.
  int64_t k = 0;  // Columns of A.
  const float* a = nullptr;
  int64_t lda = 0;
  const float* b = nullptr;
  int64_t ldb = 0;
  bool b_transposed = false;  // B is stored as n x k.
  float* c = nullptr;
  int64_t ldc = 0;
};

// Rows of A and of C follow one another.
struct PackedGemmCall {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;  // A multiple of 32.
  const BF16* a = nullptr;
  const BF16* packed_b = nullptr;  // See packing.h.
  float* c = nullptr;
  bool accumulate = false;  // C += A B.
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  // Library, version and instruction set, for reports.
  virtual std::string name() const = 0;
  virtual void Multiply(const GemmCall& call) const = 0;

  // About how many bf16 operations a core does in the time of one of f32. 0
  // where the processor has none; then the next one is not called.
  virtual double bf16_rate() const = 0;
  virtual void Multiply(const PackedGemmCall& call) const = 0;
};

// The implementation that suits this processor.
std::unique_ptr<Gemm> MakeGemm();

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_GEMM_H_
