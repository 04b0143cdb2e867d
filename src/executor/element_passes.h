// The element-wise passes of a step over this rank's segments.
//
// What: norms, momentum, Adam and the application of updates, in slices over
//   the pool's threads. Segments hold zeros where they are padding, and every
//   pass leaves zeros there.
// Ownership: refers to store and pool.
// Threads: one caller.

#ifndef MUONSTORE_SRC_EXECUTOR_ELEMENT_PASSES_H_
#define MUONSTORE_SRC_EXECUTOR_ELEMENT_PASSES_H_

#include <cstdint>
#include <span>

#include "muonstore/executor.h"
#include "muonstore/thread_pool.h"
#include "src/executor/matrix_task.h"
#include "src/kernel/adam.h"
#include "src/kernel/compute_weight.h"
#include "src/kernel/exact_sum.h"
#include "src/kernel/momentum.h"
#include "src/store/store_impl.h"

namespace muonstore {

// A run of one of this rank's segments that an update belongs to.
struct UpdateRun {
  int32_t flat_group = 0;
  int64_t first = 0;
  int64_t count = 0;
  int32_t group = 0;
  double scale = 1;
};

class ElementPasses {
 public:
  ElementPasses(StateStore::Impl& store, ThreadPool& pool)
      : store_(store), pool_(pool) {}

  // Sums of squares of the accumulated gradients of a flat group, each times
  // `factor` first.
  ExactSum SumGradients(int32_t flat_group, float factor) const;
  // The same of what the gradient segments hold in `runs`, times each scale.
  ExactSum SumUpdates(std::span<const UpdateRun> runs) const;

  void Momentum(int32_t flat_group, const MomentumParams& params);
  void Adam(int32_t flat_group, const AdamParams& params);
  // `groups` by param group; scales are multiplied by `factor`.
  void ApplyUpdates(std::span<const UpdateRun> runs,
                    std::span<const GroupHyperParameters> groups,
                    double factor);

 private:
  ComputeWeights WeightsOf(int32_t flat_group, int64_t first,
                           int64_t count) const;

  StateStore::Impl& store_;
  ThreadPool& pool_;
};

// Cuts runs, so that threads can share them.
std::vector<UpdateRun> SplitRuns(std::span<const UpdateRun> runs);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_ELEMENT_PASSES_H_
