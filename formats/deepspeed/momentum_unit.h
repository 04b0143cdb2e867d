// The factor that brings a source's momentum to the unit of a target.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_MOMENTUM_UNIT_H_
#define MUONSTORE_FORMATS_DEEPSPEED_MOMENTUM_UNIT_H_

#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"

namespace muonstore::deepspeed {

// DeepSpeed in fp16 keeps the momentum of gradients times their loss scale
// without offload, and of true gradients with it. 1 where the unit stays, or
// where there is no momentum. A change needs the scale: from the layout, or,
// from scaled to true, where the source proves it; else Error(kUnsupported).
double MomentumFactor(const CheckpointInfo& source, const TargetLayout& target);

// DeepSpeed's momentum is M = mu * M + (1 - mu) * G: 1 - mu of the param group
// where the source's accumulates (M = mu * M + G), else 1. A momentum of which
// the group does not tell mu is Error(kUnsupported).
double ConventionFactor(const CheckpointInfo& source, int32_t group);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_MOMENTUM_UNIT_H_
