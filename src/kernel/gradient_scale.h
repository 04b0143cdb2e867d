// acc / divisor * clip_factor, with which both optimizers begin.
//
// What: a division is slow; by a power of two, as divisors are where loss scale
//   and micro-batches are, the product with the reciprocal gives the same bits.
//   One type for each way, chosen outside of a pass's loop.
// Ownership, threads, failures: pure values.

#ifndef MUONSTORE_SRC_KERNEL_GRADIENT_SCALE_H_
#define MUONSTORE_SRC_KERNEL_GRADIENT_SCALE_H_

#include <cmath>

#include "src/kernel/simd.h"

namespace muonstore {

struct DividedGradient {
  float divisor;
  float clip_factor;
  MUONSTORE_INLINE float operator()(float accumulated) const {
    return accumulated / divisor * clip_factor;
  }
};

struct MultipliedGradient {
  float reciprocal;
  float clip_factor;
  MUONSTORE_INLINE float operator()(float accumulated) const {
    return accumulated * reciprocal * clip_factor;
  }
};

inline bool IsPowerOfTwo(float value) {
  int exponent = 0;
  return std::frexp(value, &exponent) == 0.5F && std::isfinite(1.0F / value);
}

// Calls body(scale) with the type that is fast for `divisor`.
template <typename Body>
MUONSTORE_INLINE void WithGradientScale(float divisor, float clip_factor,
                                        Body body) {
  if (IsPowerOfTwo(divisor)) {
    body(MultipliedGradient{1.0F / divisor, clip_factor});
  } else {
    body(DividedGradient{divisor, clip_factor});
  }
}

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_GRADIENT_SCALE_H_
