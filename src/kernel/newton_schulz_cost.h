// What a plan costs: by this the form is chosen.
//
// What: counts of operations and of bytes that pass between the processor and
//   memory that is no core's own, and what they take, in f32 operations.
// Ownership, threads: plain values and pure functions. Failures: none.

#ifndef MUONSTORE_SRC_KERNEL_NEWTON_SCHULZ_COST_H_
#define MUONSTORE_SRC_KERNEL_NEWTON_SCHULZ_COST_H_

#include <cstddef>

#include "src/kernel/newton_schulz_plan.h"

namespace muonstore {

struct NewtonSchulzCounts {
  double f32_flops = 0;  // Of products; a multiply-add is two.
  double bf16_flops = 0;
  double bytes = 0;  // Of passes over X and of those to load and to store it.
};

NewtonSchulzCounts WorkOf(const NewtonSchulzPlan& plan, size_t num_steps);

// f32 operations that take as long.
double CostOf(const NewtonSchulzCounts& work, double bf16_rate);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_NEWTON_SCHULZ_COST_H_
