// Recorded steps through a store and an executor, or through the oracle.
//
// What: turns a StepsReplay into a model, options and a list of steps, runs
//   them, and compares each recorded state within its tolerances.

#ifndef MUONSTORE_TESTS_EXECUTOR_REPLAY_RUN_H_
#define MUONSTORE_TESTS_EXECUTOR_REPLAY_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "muonstore/communicator.h"
#include "muonstore/executor.h"
#include "tests/oracle/step_oracle.h"
#include "tests/testutil/replay.h"

namespace muonstore::testutil {

// The worst deviation, as a part of its tolerance: above 1 it is too much.
struct Deviation {
  double ratio = 0;
  std::string where;  // "step 2: param/qkv".
};

// The values of a tensor, "param/qkv".
using StateReader = std::function<std::vector<double>(const std::string&)>;

Deviation Compare(const ExpectedState& expected, const StateReader& state,
                  bool strict);

// Every recorded variant, and two that others imply: an overflow before the
// second step, and a loss scale.
std::vector<StepsReplay> AllStepsReplays();

struct ReplayCut {
  int32_t stage = 2;
  NewtonSchulzForm form = NewtonSchulzForm::kStandard;
  int num_threads = 1;
  // Where state is on NVMe; empty: in memory.
  std::string nvme_directory = {};
};

// Collective. All recorded steps in one form, standard held to the strict
// tolerances, with the
// gradient `site` of the overflow. Reports of skipped steps are checked.
Deviation RunReplay(const std::vector<ReplayParameter>& parameters,
                    const StepsReplay& replay, const ReplayCut& cut,
                    std::shared_ptr<Communicator> communicator,
                    size_t site = 0);

// The same by the oracle, up to the last recorded state of a step <= limit.
Deviation RunOracle(const std::vector<ReplayParameter>& parameters,
                    const StepsReplay& replay, oracle::Mistake mistake,
                    int64_t limit, size_t site = 0);

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_EXECUTOR_REPLAY_RUN_H_
