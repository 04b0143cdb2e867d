// Which system's run a checkpoint is of, whatever format it is in now.
//
// What: DeepSpeed's classes differ in what they clip; a native checkpoint that
//   was converted from one keeps the name of the class.
// Threads, failures: pure functions that do not fail.

#ifndef MUONSTORE_SRC_CHECKPOINT_ORIGIN_H_
#define MUONSTORE_SRC_CHECKPOINT_ORIGIN_H_

#include "muonstore/checkpoint.h"

namespace muonstore {

bool IsDeepSpeedRun(const CheckpointInfo& info);
// BF16_Optimizer clips raw gradients; the others orthogonalized updates.
bool ClipsRawGradients(const CheckpointInfo& info);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_CHECKPOINT_ORIGIN_H_
