#include "src/kernel/split_float.h"

#include <bit>
#include <cmath>

#include "src/kernel/simd.h"

namespace muonstore {
namespace {

MUONSTORE_INLINE void Split(float value, BF16* upper, int16_t* lower) {
  const auto bits = std::bit_cast<uint32_t>(value);
  upper->bits = static_cast<uint16_t>((bits + 0x8000U) >> 16);
  *lower = static_cast<int16_t>(static_cast<uint16_t>(bits));
}

MUONSTORE_INLINE float Join(BF16 upper, int16_t lower) {
  return std::bit_cast<float>(
      (static_cast<uint32_t>(upper.bits) << 16) +
      static_cast<uint32_t>(static_cast<int32_t>(lower)));
}

}  // namespace

MUONSTORE_SIMD
void ScaleSplitInto(const Block<const float>& in, double scale,
                    const SplitBlock& out) {
  for (int64_t i = 0; i < in.rows; ++i) {
    const float* __restrict from = in.data + i * in.ld;
    BF16* __restrict upper = out.upper + i * out.ld;
    int16_t* __restrict lower = out.lower + i * out.ld;
    for (int64_t j = 0; j < in.cols; ++j) {
      Split(static_cast<float>(from[j] * scale), upper + j, lower + j);
    }
  }
}

MUONSTORE_SIMD
void AddScaledSplit(const SplitBlock& x, const Block<const float>& product,
                    float a) {
  for (int64_t i = 0; i < product.rows; ++i) {
    const float* __restrict from = product.data + i * product.ld;
    BF16* __restrict upper = x.upper + i * x.ld;
    int16_t* __restrict lower = x.lower + i * x.ld;
    for (int64_t j = 0; j < product.cols; ++j) {
      Split(std::fma(a, Join(upper[j], lower[j]), from[j]), upper + j,
            lower + j);
    }
  }
}

}  // namespace muonstore
