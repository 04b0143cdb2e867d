// Stores that are ready to step, with gradients from a seeded source that does
// not depend on ranks.

#ifndef MUONSTORE_TESTS_EXECUTOR_STEP_MODEL_H_
#define MUONSTORE_TESTS_EXECUTOR_STEP_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muonstore/communicator.h"
#include "muonstore/executor.h"
#include "muonstore/parameter.h"
#include "muonstore/store.h"

namespace muonstore::testutil {

// Normal-looking values: of a parameter, for one seed.
std::vector<float> RandomValues(const ParameterSpec& parameter, uint64_t seed);

struct StepSetup {
  int32_t stage = 2;
  std::vector<ParameterSpec> model;  // Empty: SmallModel().
  TierPolicy tiers = {};
  SwapMode swap_mode = SwapMode::kPipelined;
  uint64_t max_snapshot_bytes = 0;
};

// A store with random masters and their rounded compute weights.
std::unique_ptr<StateStore> MakeStepStore(
    std::shared_ptr<Communicator> communicator, const StepSetup& setup);

// Two groups: Muon with weight decay, Adam.
ExecutorOptions StepOptionsOf(const StateStore& store);

// Whole gradients of micro-batch `seed` for every parameter with state, times
// `factor`.
void AccumulateAll(StateStore& store, OffloadExecutor& executor, uint64_t seed,
                   float factor = 1);

// Every state of every parameter, gathered: key -> bytes. Collective.
using StateBytes = std::map<std::string, std::vector<std::byte>>;
StateBytes AllState(StateStore& store);

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_EXECUTOR_STEP_MODEL_H_
