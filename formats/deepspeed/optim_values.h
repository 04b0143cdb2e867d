// Objects and small values of optim_states files.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_OPTIM_VALUES_H_
#define MUONSTORE_FORMATS_DEEPSPEED_OPTIM_VALUES_H_

#include <cstddef>
#include <cstdint>

#include "formats/deepspeed/carried_optimizer.h"
#include "formats/deepspeed/file_draft.h"
#include "formats/deepspeed/target.h"

namespace muonstore::deepspeed {

torchfile::NodeId ToNode(torchfile::Draft& draft, const Scalar& value);

// deepspeed.runtime.zero.config.ZeroStageEnum.
torchfile::NodeId ZeroStage(torchfile::Draft& draft, int32_t stage);

// The source's loss scaler; one of the precision's kind where the source has
// none or another precision.
torchfile::NodeId LossScaler(const Target& target,
                             const CarriedOptimizer& carried, FileDraft& file);

// The hyper-parameters of a param group with `params`. A source without any
// (elastic files) gives those of its config.
torchfile::NodeId ParamGroupValues(const Target& target,
                                   const CarriedOptimizer& carried,
                                   size_t group, torchfile::NodeId params,
                                   FileDraft& file);

// Of a rank's partition of a flat group: name -> {numel, start}.
torchfile::NodeId SliceMapping(const Target& target, int32_t rank,
                               size_t flat_group, FileDraft& file);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_OPTIM_VALUES_H_
