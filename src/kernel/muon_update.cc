#include "src/kernel/muon_update.h"

#include <cmath>

#include "src/kernel/simd.h"
#include "src/kernel/store_weight.h"

namespace muonstore {
namespace {

template <typename Weight>
MUONSTORE_INLINE void Loop(const float* update, const StateSpan& state,
                           float decay, float step, Weight weight) {
  const float* master = state.in.data();
  float* next = state.out.data();
  const size_t count = state.in.size();
  MUONSTORE_INDEPENDENT
  for (size_t i = 0; i < count; ++i) {
    const float updated = std::fma(-step, update[i], master[i] * decay);
    next[i] = updated;
    weight.Store(i, updated);
  }
}

MUONSTORE_SIMD
void Apply(std::span<const float> update, const StateSpan& master, float decay,
           float step, const ComputeWeights& weights) {
  WithWeight(
      weights, [&](auto weight) __attribute__((always_inline)) {
        Loop(update.data(), master, decay, step, weight);
      });
}

}  // namespace

void ApplyMuonUpdate(const MuonUpdateParams& params,
                     std::span<const float> update, const StateSpan& master,
                     const ComputeWeights& weights) {
  CheckState("master weight", update.size(), master);
  CheckWeights(weights, update.size());
  Apply(update, master,
        static_cast<float>(1.0 - params.lr * params.weight_decay),
        static_cast<float>(params.lr * params.scale), weights);
}

}  // namespace muonstore
