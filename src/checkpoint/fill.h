// Reading a store's tensors from a checkpoint, several at a time.

#ifndef MUONSTORE_SRC_CHECKPOINT_FILL_H_
#define MUONSTORE_SRC_CHECKPOINT_FILL_H_

#include <optional>

#include "muonstore/error.h"
#include "src/checkpoint/load_plan.h"

namespace muonstore {

// Writes every tensor of the plan; what the store held is not read. The first
// error in the plan's order, where there is one: some tensors are then of the
// checkpoint, some as they were.
std::optional<Error> FillStore(StateStore& store, const Checkpoint& checkpoint,
                               const LoadPlan& plan);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_CHECKPOINT_FILL_H_
