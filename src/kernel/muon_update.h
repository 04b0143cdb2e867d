// Applying an orthogonalized update to the master weights.
//
// What, element by element, every line rounded to f32 as it stands:
//   W = W * d             d = float(1 - lr * weight_decay)
//   W = fma(-s, U, W)     s = float(lr * scale)
// where products of lr are in double: torch's mul_ and add_(alpha). The decay
// is decoupled and uses the learning rate without the scale. The compute weight
// is the new W, rounded.
// Bits: the same for an element whatever range it is passed in.
// Ownership: views that must not overlap; see state_span.h.
// Threads: pure; call from many threads on disjoint ranges.
// Failures: Error(kInvalidArgument) for sizes that do not fit.

#ifndef MUONSTORE_SRC_KERNEL_MUON_UPDATE_H_
#define MUONSTORE_SRC_KERNEL_MUON_UPDATE_H_

#include <span>

#include "src/kernel/compute_weight.h"
#include "src/kernel/state_span.h"

namespace muonstore {

struct MuonUpdateParams {
  double lr = 0;
  double weight_decay = 0;
  double scale = 1;  // MuonScale, times a clip factor of the update if any.
};

void ApplyMuonUpdate(const MuonUpdateParams& params,
                     std::span<const float> update, const StateSpan& master,
                     const ComputeWeights& weights);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_MUON_UPDATE_H_
