#include <utility>
#include <vector>

#include "src/base/str.h"
#include "src/kernel/gemm.h"
#include "src/tensor/float_bits.h"

namespace muonstore {
namespace {

// `num_rows` x `num_cols`, packed.
std::vector<float> Widen(const BF16* data, int64_t ld, int64_t num_rows,
                         int64_t num_cols) {
  std::vector<float> widened(static_cast<size_t>(num_rows * num_cols));
  float* out = widened.data();
  for (int64_t i = 0; i < num_rows; ++i) {
    for (int64_t j = 0; j < num_cols; ++j) {
      *out++ = FloatFromBF16(data[i * ld + j].bits);
    }
  }
  return widened;
}

class WideningGemm : public Gemm {
 public:
  explicit WideningGemm(std::unique_ptr<Gemm> inner)
      : inner_(std::move(inner)) {}

  std::string name() const override {
    return StrCat(inner_->name(), " (bf16 widened)");
  }

  void Multiply(const GemmCall<float>& call) const override {
    inner_->Multiply(call);
  }

  void Multiply(const GemmCall<BF16>& call) const override {
    const bool transposed = call.b_transposed;
    const int64_t b_rows = transposed ? call.n : call.k;
    const int64_t b_cols = transposed ? call.k : call.n;
    const std::vector<float> a = Widen(call.a, call.lda, call.m, call.k);
    const std::vector<float> b = Widen(call.b, call.ldb, b_rows, b_cols);
    inner_->Multiply(GemmCall<float>{.m = call.m,
                                     .n = call.n,
                                     .k = call.k,
                                     .a = a.data(),
                                     .lda = call.k,
                                     .b = b.data(),
                                     .ldb = b_cols,
                                     .b_transposed = transposed,
                                     .c = call.c,
                                     .ldc = call.ldc});
  }

 private:
  std::unique_ptr<Gemm> inner_;
};

}  // namespace

std::unique_ptr<Gemm> MakeWideningGemm(std::unique_ptr<Gemm> inner) {
  return std::make_unique<WideningGemm>(std::move(inner));
}

}  // namespace muonstore
