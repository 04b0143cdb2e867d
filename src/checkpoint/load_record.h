// What a store records after a load: momentum convention and units, steps,
// clipping mode.
//
// Threads, failures: as load_plan.h.

#ifndef MUONSTORE_SRC_CHECKPOINT_LOAD_RECORD_H_
#define MUONSTORE_SRC_CHECKPOINT_LOAD_RECORD_H_

#include "src/checkpoint/load_plan.h"

namespace muonstore {

// Fills plan.record and the divisors of momentum in plan.items, which are
// complete; adds what a user should know to plan.report.
void PlanRecord(const StateStore& store, const Checkpoint& checkpoint,
                const LoadOptions& options, LoadPlan& plan);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_CHECKPOINT_LOAD_RECORD_H_
