// Which loss scale turns fp16 momentum from one unit into the other.
//
// Threads, failures: pure; Error(kInvalidArgument) for a value of the option
//   that makes no sense for this conversion, Error(kUnsupported) where "auto"
//   finds none.
#ifndef MUONSTORE_TOOLS_CKPT_CONVERT_MOMENTUM_CHOICE_H_
#define MUONSTORE_TOOLS_CKPT_CONVERT_MOMENTUM_CHOICE_H_

#include <string>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"

namespace muonstore::tools {

// For TargetLayout::momentum_scale: what --momentum-scale means; 0 where it was
// not given or changes nothing. What was assumed or is idle is added to
// `notes`.
double ChooseMomentumScale(const std::string& option,
                           const CheckpointInfo& source,
                           const TargetLayout& target,
                           std::vector<std::string>& notes);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_CONVERT_MOMENTUM_CHOICE_H_
