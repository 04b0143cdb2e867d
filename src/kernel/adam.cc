#include "src/kernel/adam.h"

#include <cmath>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/kernel/gradient_scale.h"
#include "src/kernel/lerp.h"
#include "src/kernel/simd.h"
#include "src/kernel/store_weight.h"

namespace muonstore {
namespace {

// The step's constants as the loops use them.
struct Constants {
  float divisor;
  float clip_factor;
  float l2;     // Weight decay added to the gradient.
  float decay;  // Torch: factor of W. DeepSpeed: W's own, added to W.
  float beta1;
  float beta2;
  float rest1;  // 1 - beta1.
  float rest2;  // 1 - beta2.
  float root;   // Torch: sqrt(c2). DeepSpeed: 1 / sqrt(c2).
  float eps;
  float step_size;  // -lr / c1.
};

struct Pointers {
  const float* accumulated;
  const float* master;
  const float* exp_avg;
  const float* exp_avg_sq;
  float* next_master;
  float* next_exp_avg;
  float* next_exp_avg_sq;
};

template <typename Scale>
struct PlainGradient {
  Scale scale;
  MUONSTORE_INLINE float operator()(float accumulated, float /*master*/) const {
    return scale(accumulated);
  }
};

template <typename Scale>
struct L2Gradient {
  Scale scale;
  float l2;
  MUONSTORE_INLINE float operator()(float accumulated, float master) const {
    return std::fma(l2, master, scale(accumulated));
  }
};

// Calls body(gradient) with the type that computes what `c` and `l2` say.
template <typename Body>
MUONSTORE_INLINE void WithGradient(const Constants& c, bool l2, Body body) {
  WithGradientScale(
      c.divisor, c.clip_factor, [&](auto scale) __attribute__((always_inline)) {
        using Scale = decltype(scale);
        if (l2) {
          body(L2Gradient<Scale>{scale, c.l2});
        } else {
          body(PlainGradient<Scale>{scale});
        }
      });
}

template <typename Gradient, typename Weight>
MUONSTORE_INLINE void TorchLoop(Constants c, Pointers p, size_t count,
                                Gradient gradient_of, Weight weight) {
  const Lerp lerp(c.rest1);
  MUONSTORE_INDEPENDENT
  for (size_t i = 0; i < count; ++i) {
    const float gradient = gradient_of(p.accumulated[i], p.master[i]);
    const float decayed = p.master[i] * c.decay;
    const float exp_avg = lerp(p.exp_avg[i], gradient);
    const float exp_avg_sq =
        std::fma(c.rest2 * gradient, gradient, p.exp_avg_sq[i] * c.beta2);
    const float denominator = std::sqrt(exp_avg_sq) / c.root + c.eps;
    const float updated = decayed + c.step_size * exp_avg / denominator;
    p.next_exp_avg[i] = exp_avg;
    p.next_exp_avg_sq[i] = exp_avg_sq;
    p.next_master[i] = updated;
    weight.Store(i, updated);
  }
}

template <typename Gradient, typename Weight>
MUONSTORE_INLINE void DeepSpeedLoop(Constants c, Pointers p, size_t count,
                                    Gradient gradient_of, Weight weight) {
  MUONSTORE_INDEPENDENT
  for (size_t i = 0; i < count; ++i) {
    const float gradient = gradient_of(p.accumulated[i], p.master[i]);
    const float exp_avg = std::fma(gradient, c.rest1, p.exp_avg[i] * c.beta1);
    const float exp_avg_sq =
        std::fma(gradient * gradient, c.rest2, p.exp_avg_sq[i] * c.beta2);
    const float direction =
        exp_avg / std::fma(std::sqrt(exp_avg_sq), c.root, c.eps);
    const float decayed = std::fma(p.master[i], c.decay, p.master[i]);
    const float updated = std::fma(direction, c.step_size, decayed);
    p.next_exp_avg[i] = exp_avg;
    p.next_exp_avg_sq[i] = exp_avg_sq;
    p.next_master[i] = updated;
    weight.Store(i, updated);
  }
}

MUONSTORE_SIMD
void StepTorch(const Constants& c, const Pointers& p, size_t count, bool l2,
               const ComputeWeights& weights) {
  WithWeight(
      weights, [&](auto weight) __attribute__((always_inline)) {
        WithGradient(
            c, l2, [&](auto gradient) __attribute__((always_inline)) {
              TorchLoop(c, p, count, gradient, weight);
            });
      });
}

MUONSTORE_SIMD
void StepDeepSpeed(const Constants& c, const Pointers& p, size_t count, bool l2,
                   const ComputeWeights& weights) {
  WithWeight(
      weights, [&](auto weight) __attribute__((always_inline)) {
        WithGradient(
            c, l2, [&](auto gradient) __attribute__((always_inline)) {
              DeepSpeedLoop(c, p, count, gradient, weight);
            });
      });
}

// What both orders round in the same way.
Constants Common(const AdamParams& params) {
  Constants c = {};
  c.divisor = params.divisor;
  c.clip_factor = params.clip_factor;
  c.l2 = static_cast<float>(params.weight_decay);
  c.beta1 = static_cast<float>(params.beta1);
  c.beta2 = static_cast<float>(params.beta2);
  c.eps = static_cast<float>(params.eps);
  return c;
}

Constants TorchConstants(const AdamParams& params) {
  const auto step = static_cast<double>(params.step);
  const bool correct = params.bias_correction;
  const double c1 = correct ? 1.0 - std::pow(params.beta1, step) : 1.0;
  const double c2 = correct ? 1.0 - std::pow(params.beta2, step) : 1.0;
  const double decay = params.decoupled_decay ? params.weight_decay : 0.0;
  Constants c = Common(params);
  c.decay = static_cast<float>(1.0 - params.lr * decay);
  c.rest1 = static_cast<float>(1.0 - params.beta1);
  c.rest2 = static_cast<float>(1.0 - params.beta2);
  c.root = static_cast<float>(std::sqrt(c2));
  c.step_size = static_cast<float>(-params.lr / c1);
  return c;
}

Constants DeepSpeedConstants(const AdamParams& params) {
  Constants c = Common(params);
  const auto step = static_cast<double>(params.step);
  const auto lr = static_cast<float>(params.lr);
  const bool correct = params.bias_correction;
  const auto power1 = static_cast<float>(std::pow(c.beta1, step));
  const auto power2 = static_cast<float>(std::pow(c.beta2, step));
  const float c1 = correct ? 1.0F - power1 : 1.0F;
  const double c2 = correct ? 1.0F - power2 : 1.0F;
  c.decay = params.decoupled_decay ? -lr * c.l2 : 0.0F;
  c.rest1 = 1.0F - c.beta1;
  c.rest2 = 1.0F - c.beta2;
  c.root = static_cast<float>(1.0 / std::sqrt(c2));
  c.step_size = -lr / c1;
  return c;
}

}  // namespace

void AdamStep(const AdamParams& params, std::span<const float> accumulated,
              const AdamState& state, const ComputeWeights& weights) {
  if (params.step < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "an Adam update has a step number below one",
                {.expected = "1 or more", .found = StrCat(params.step)});
  }
  const size_t count = accumulated.size();
  CheckState("master weight", count, state.master);
  CheckState("exp_avg", count, state.exp_avg);
  CheckState("exp_avg_sq", count, state.exp_avg_sq);
  CheckWeights(weights, count);
  const Pointers pointers = {
      accumulated.data(),          state.master.in.data(),
      state.exp_avg.in.data(),     state.exp_avg_sq.in.data(),
      state.master.out.data(),     state.exp_avg.out.data(),
      state.exp_avg_sq.out.data(),
  };
  const bool l2 = !params.decoupled_decay && params.weight_decay != 0;
  if (params.order == AdamOrder::kTorch) {
    StepTorch(TorchConstants(params), pointers, count, l2, weights);
  } else {
    StepDeepSpeed(DeepSpeedConstants(params), pointers, count, l2, weights);
  }
}

}  // namespace muonstore
