// A run that steps, saves and resumes, with gradients that depend on the step
// alone.

#ifndef MUONSTORE_TESTS_CHECKPOINT_LIVE_RUN_H_
#define MUONSTORE_TESTS_CHECKPOINT_LIVE_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "muonstore/communicator.h"
#include "muonstore/executor.h"
#include "muonstore/save.h"
#include "muonstore/store.h"
#include "tests/executor/step_model.h"
#include "tests/testutil/run_ranks.h"

namespace muonstore::testutil {

class LiveRun {
 public:
  LiveRun(std::shared_ptr<Communicator> ranks, const StepSetup& setup);
  ~LiveRun();

  StateStore& store() { return *store_; }
  OffloadExecutor& executor() { return *executor_; }
  // As the executor has them.
  std::vector<GroupHyperParameters> groups();

  // Steps [first, last) of the run; those that 4 divides, but for step 0,
  // overflow.
  void Steps(int64_t first, int64_t last);
  // Every tensor, and the record as text under "record". Collective.
  StateBytes State();
  // Collective.
  void Close();

 private:
  std::unique_ptr<StateStore> store_;
  std::unique_ptr<OffloadExecutor> executor_;
};

// State of the run after `num_steps` steps on one rank.
StateBytes StateAfter(int64_t num_steps, const StepSetup& setup = {});

// Runs ranks that end by SIGKILL, each at its own hand.
void RunKilledRanks(
    int32_t num_ranks,
    const std::function<void(std::shared_ptr<Communicator>)>& rank_function,
    const RunRanksOptions& options = {});

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_CHECKPOINT_LIVE_RUN_H_
