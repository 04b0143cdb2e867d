// The parts of a load that loading one checkpoint and trying several share.

#ifndef MUONSTORE_SRC_CHECKPOINT_LOAD_STEPS_H_
#define MUONSTORE_SRC_CHECKPOINT_LOAD_STEPS_H_

#include <cstdint>
#include <optional>

#include "src/checkpoint/load_plan.h"

namespace muonstore {

// Throws where the store cannot be loaded now; else plans. Not collective.
LoadPlan PlanLoadOf(StateStore& store, const Checkpoint& checkpoint,
                    const LoadOptions& options);

// Of what the ranks must have in common: the checkpoint and what is read of it.
int64_t DigestOf(const Checkpoint& checkpoint, const LoadPlan& plan);

// Collective. Where a format gives a save no identity, checkpoints of one model
// and step are told apart by some elements of each tensor. A rank that cannot
// read them has no say: the load will find the damage.
// Error(kInvalidArgument) on all ranks where they differ.
void RequireSameContent(Communicator& ranks, const Checkpoint& checkpoint,
                        const LoadPlan& plan);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_CHECKPOINT_LOAD_STEPS_H_
