// In which loss scale's unit fp16 momentum is, from the scaler's counters.
//
// What: DeepSpeed's momentum without offload sums gradients times the loss
//   scale of their step and is never rescaled when the scale changes. The
//   scaler's counters tell the history where it overflowed at most once, or
//   only at the start.
// Threads, failures: a pure function that does not fail.

#ifndef MUONSTORE_CONVERTERS_MOMENTUM_SCALE_H_
#define MUONSTORE_CONVERTERS_MOMENTUM_SCALE_H_

#include <optional>

#include "muonstore/checkpoint.h"

namespace muonstore {

// The one scale of every gradient in the momentum; nullopt where there were
// several, or where the counters leave it open.
std::optional<double> ReplayMomentumScale(const CheckpointInfo& info);

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_MOMENTUM_SCALE_H_
