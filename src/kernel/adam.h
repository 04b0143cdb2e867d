// One fused pass of Adam over f32 state.
//
// What, element by element, every line rounded to f32 as it stands. First
//   g = acc / divisor;  g = g * clip_factor
//   g = fma(weight_decay, W, g)               only with classic L2 decay
// Order of torch.optim.AdamW (single tensor; c1 = 1 - beta1^t and
// c2 = 1 - beta2^t in double, like every constant before it is rounded):
//   W = W * float(1 - lr * weight_decay)      only with decoupled decay
//   m = lerp(m, g, float(1 - beta1))          lerp as in momentum.h
//   v = fma(float(1 - beta2) * g, g, v * float(beta2))
//   d = sqrt(v) / float(sqrt(c2)) + float(eps)
//   W = W + (float(-lr / c1) * m) / d
// Order of DeepSpeedCPUAdam (its powers of beta in float):
//   m = fma(g, 1 - float(beta1), m * float(beta1))
//   v = fma(g * g, 1 - float(beta2), v * float(beta2))
//   d = m / fma(sqrt(v), 1 / sqrt(1 - pow(beta2, t)), float(eps))
//   W = fma(W, float(-lr * weight_decay), W)  only with decoupled decay
//   W = fma(d, float(-lr / (1 - pow(beta1, t))), W)
// The compute weight is the new W, rounded.
// Bits: the same for an element whatever range it is passed in.
// Ownership: views that must not overlap; see state_span.h.
// Threads: pure; call from many threads on disjoint ranges.
// Failures: Error(kInvalidArgument) for sizes that do not fit and a step < 1.

#ifndef MUONSTORE_SRC_KERNEL_ADAM_H_
#define MUONSTORE_SRC_KERNEL_ADAM_H_

#include <cstdint>
#include <span>

#include "muonstore/update_rule.h"
#include "src/kernel/compute_weight.h"
#include "src/kernel/state_span.h"

namespace muonstore {

struct AdamParams {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  int64_t step = 1;  // Of this update: the first is 1.
  AdamOrder order = AdamOrder::kTorch;
  bool decoupled_decay = true;  // AdamW; false is classic Adam with L2.
  bool bias_correction = true;  // False: c1 = c2 = 1.
  float divisor = 1;            // Loss scale times micro-batches.
  float clip_factor = 1;
};

struct AdamState {
  StateSpan master;
  StateSpan exp_avg;
  StateSpan exp_avg_sq;
};

void AdamStep(const AdamParams& params, std::span<const float> accumulated,
              const AdamState& state, const ComputeWeights& weights);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_ADAM_H_
