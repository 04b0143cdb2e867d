// The element-wise passes of a step over the stages of its units.
//
// What: norms, momentum, Adam and the application of updates, in slices over
//   the pool's threads. Segments hold zeros where they are padding, and every
//   pass leaves zeros there.
// Ownership: refers to the pool.
// Threads: one caller.

#ifndef MUONSTORE_SRC_EXECUTOR_ELEMENT_PASSES_H_
#define MUONSTORE_SRC_EXECUTOR_ELEMENT_PASSES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "muonstore/executor.h"
#include "muonstore/thread_pool.h"
#include "src/executor/stage.h"
#include "src/kernel/adam.h"
#include "src/kernel/exact_sum.h"
#include "src/kernel/momentum.h"

namespace muonstore {

// A run of one of this rank's segments that an update belongs to.
struct UpdateRun {
  SegmentRun at;
  int32_t group = 0;
  double scale = 1;
};

// Cuts runs, so that threads can share them.
std::vector<UpdateRun> SplitRuns(std::span<const UpdateRun> runs);
// Of a whole unit.
std::vector<UpdateRun> SplitRuns(const Unit& unit);

class ElementPasses {
 public:
  explicit ElementPasses(ThreadPool& pool) : pool_(pool) {}

  // Sum of squares of what the gradient segments hold in `runs`, each element
  // times the float of its run's scale first.
  ExactSum SumSquares(const Stage& stage, std::span<const UpdateRun> runs);

  // `params` by param group.
  void Momentum(const Stage& stage, std::span<const UpdateRun> runs,
                std::span<const MomentumParams> params);
  void Adam(const Stage& stage, const Unit& unit, const AdamParams& params);
  // `groups` by param group; scales are multiplied by `factor`.
  void ApplyUpdates(const Stage& stage, std::span<const UpdateRun> runs,
                    std::span<const GroupHyperParameters> groups,
                    double factor);

 private:
  ThreadPool& pool_;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_ELEMENT_PASSES_H_
