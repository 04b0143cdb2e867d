#include "src/kernel/momentum.h"

#include "src/kernel/gradient_scale.h"
#include "src/kernel/lerp.h"
#include "src/kernel/simd.h"
#include "src/kernel/store_weight.h"

namespace muonstore {
namespace {

struct Blend {
  float divisor;
  float clip_factor;
  float mu;
  Lerp into_momentum;
  Lerp into_update;
};

template <bool kNesterov, typename Scale>
MUONSTORE_INLINE void LerpLoop(Blend blend, Scale scale, float* accumulated,
                               const float* momentum, float* next,
                               size_t count) {
  MUONSTORE_INDEPENDENT
  for (size_t i = 0; i < count; ++i) {
    const float gradient = scale(accumulated[i]);
    const float updated = blend.into_momentum(momentum[i], gradient);
    next[i] = updated;
    if constexpr (kNesterov) {
      accumulated[i] = blend.into_update(gradient, updated);
    }
  }
}

template <bool kNesterov, typename Scale>
MUONSTORE_INLINE void AccumulateLoop(Blend blend, Scale scale,
                                     float* accumulated, const float* momentum,
                                     float* next, size_t count) {
  MUONSTORE_INDEPENDENT
  for (size_t i = 0; i < count; ++i) {
    const float gradient = scale(accumulated[i]);
    const float updated = blend.mu * momentum[i] + gradient;
    next[i] = updated;
    if constexpr (kNesterov) {
      accumulated[i] = blend.mu * updated + gradient;
    }
  }
}

MUONSTORE_SIMD
void Update(const Blend& blend, MomentumConvention convention, bool nesterov,
            float* accumulated, const StateSpan& state) {
  const float* momentum = state.in.data();
  float* next = state.out.data();
  const size_t count = state.in.size();
  const bool lerp = convention == MomentumConvention::kLerp;
  WithGradientScale(
      blend.divisor,
      blend.clip_factor, [&](auto scale) __attribute__((always_inline)) {
        if (lerp && nesterov) {
          LerpLoop<true>(blend, scale, accumulated, momentum, next, count);
        } else if (lerp) {
          LerpLoop<false>(blend, scale, accumulated, momentum, next, count);
        } else if (nesterov) {
          AccumulateLoop<true>(blend, scale, accumulated, momentum, next,
                               count);
        } else {
          AccumulateLoop<false>(blend, scale, accumulated, momentum, next,
                                count);
        }
      });
}

}  // namespace

void UpdateMomentum(const MomentumParams& params, std::span<float> accumulated,
                    const StateSpan& momentum) {
  CheckState("momentum", accumulated.size(), momentum);
  const Blend blend = {
      .divisor = params.divisor,
      .clip_factor = params.clip_factor,
      .mu = static_cast<float>(params.mu),
      .into_momentum = Lerp(static_cast<float>(1.0 - params.mu)),
      .into_update = Lerp(static_cast<float>(params.mu)),
  };
  Update(blend, params.convention, params.nesterov, accumulated.data(),
         momentum);
}

}  // namespace muonstore
