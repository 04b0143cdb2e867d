#include "src/checkpoint/origin.h"

namespace muonstore {

bool ClipsRawGradients(const CheckpointInfo& info) {
  return info.optimizer_class == "BF16_Optimizer";
}

bool IsDeepSpeedRun(const CheckpointInfo& info) {
  return info.format == "deepspeed" || ClipsRawGradients(info) ||
         info.optimizer_class.starts_with("DeepSpeedZeroOptimizer");
}

}  // namespace muonstore
