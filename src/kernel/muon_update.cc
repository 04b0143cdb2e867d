#include "src/kernel/muon_update.h"

#include <cmath>

#include "src/kernel/simd.h"
#include "src/kernel/store_weight.h"

namespace muonstore {
namespace {

template <typename Weight>
MUONSTORE_INLINE void Loop(const float* __restrict update,
                           float* __restrict master, size_t count, float decay,
                           float step, Weight weight) {
  for (size_t i = 0; i < count; ++i) {
    const float updated = std::fma(-step, update[i], master[i] * decay);
    master[i] = updated;
    weight.Store(i, updated);
  }
}

MUONSTORE_SIMD
void Apply(std::span<const float> update, float* master, float decay,
           float step, const ComputeWeights& weights) {
  WithWeight(
      weights, [&](auto weight) __attribute__((always_inline)) {
        Loop(update.data(), master, update.size(), decay, step, weight);
      });
}

}  // namespace

void ApplyMuonUpdate(const MuonUpdateParams& params,
                     std::span<const float> update, std::span<float> master,
                     const ComputeWeights& weights) {
  CheckCount("orthogonalized matrix", master.size(), update.size());
  CheckWeights(weights, master.size());
  Apply(update, master.data(),
        static_cast<float>(1.0 - params.lr * params.weight_decay),
        static_cast<float>(params.lr * params.scale), weights);
}

}  // namespace muonstore
