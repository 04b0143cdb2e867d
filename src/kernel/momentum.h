// The pass before orthogonalization: gradient, momentum, Nesterov.
//
// What, element by element, every line rounded to f32 as it stands (fma is one
// rounding; w = float(1 - mu) with 1 - mu in double, v = float(mu)):
//   g = acc / divisor
//   g = g * clip_factor
//   lerp:        M = lerp(M, g, w)     accumulate:  M = (v * M) + g
//   Nesterov, in acc's place, with the new M:
//   lerp:        N = lerp(g, M, v)     accumulate:  N = (v * M) + g
// with lerp(s, e, t) = fma(t, e - s, s) for t < 0.5, else fma(t - 1, e - s, e):
// torch's own, bit for bit in f32. The sum v * M + g is two roundings, as in
// dion and Moonlight.
// Bits: the same for an element whatever range it is passed in.
// Ownership: views that must not overlap; see state_span.h.
// Threads: pure; call from many threads on disjoint ranges.
// Failures: Error(kInvalidArgument) for sizes that differ.

#ifndef MUONSTORE_SRC_KERNEL_MOMENTUM_H_
#define MUONSTORE_SRC_KERNEL_MOMENTUM_H_

#include <span>

#include "muonstore/checkpoint.h"
#include "src/kernel/state_span.h"

namespace muonstore {

struct MomentumParams {
  MomentumConvention convention = MomentumConvention::kLerp;
  double mu = 0.95;
  bool nesterov = true;
  float divisor = 1;      // Loss scale times micro-batches.
  float clip_factor = 1;  // Rounded once, the same for the whole step.
};

// Updates `momentum`. With Nesterov `accumulated` then holds what to
// orthogonalize; without, it is left as it was: that is the momentum itself.
void UpdateMomentum(const MomentumParams& params, std::span<float> accumulated,
                    const StateSpan& momentum);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_MOMENTUM_H_
