// torch's lerp, whose rounding both optimizers need.
//
// Ownership, threads, failures: pure values.

#ifndef MUONSTORE_SRC_KERNEL_LERP_H_
#define MUONSTORE_SRC_KERNEL_LERP_H_

#include <cmath>

#include "src/kernel/simd.h"

namespace muonstore {

// From `start` to `end` by a weight in [0, 1], from the nearer side.
class Lerp {
 public:
  explicit Lerp(float weight)
      : from_start_(weight < 0.5F),
        coefficient_(from_start_ ? weight : weight - 1.0F) {}

  MUONSTORE_INLINE float operator()(float start, float end) const {
    const float base = from_start_ ? start : end;
    return std::fma(coefficient_, end - start, base);
  }

 private:
  bool from_start_;
  float coefficient_;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_LERP_H_
