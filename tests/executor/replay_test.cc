// Recorded steps of a float64 reference, at every stage and number of ranks;
// and the proof that executors which make a common mistake would not pass.

#include "tests/testutil/replay.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/executor/replay_run.h"
#include "tests/store/store_ranks.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/scratch.h"

namespace muonstore {
namespace {

using oracle::Mistake;
using testutil::Deviation;
using testutil::ReplayCut;
using testutil::ReplayParameter;
using testutil::StepsReplay;

// Read once: HDF5 is the slowest part of these tests.
const std::vector<ReplayParameter>& Parameters() {
  static const std::vector<ReplayParameter> kParameters =
      testutil::ReadReplayParameters();
  return kParameters;
}

const std::vector<StepsReplay>& Replays() {
  static const std::vector<StepsReplay> kReplays = testutil::AllStepsReplays();
  return kReplays;
}

struct Cut {
  int32_t num_ranks = 1;
  ReplayCut cut;
};

// Every stage with every number of ranks; forms and threads take turns.
std::vector<Cut> Cuts() {
  constexpr NewtonSchulzForm kForms[] = {NewtonSchulzForm::kStandard,
                                         NewtonSchulzForm::kGram,
                                         NewtonSchulzForm::kAuto};
  std::vector<Cut> cuts;
  for (int32_t stage = 1; stage <= 3; ++stage) {
    for (int32_t num_ranks = 1; num_ranks <= 4; ++num_ranks) {
      cuts.push_back({num_ranks,
                      {.stage = stage,
                       .form = kForms[cuts.size() % 3],
                       .num_threads = num_ranks == 1 ? 2 : 1}});
    }
  }
  return cuts;
}

class StepsReplayTest : public testing::TestWithParam<size_t> {
 protected:
  const StepsReplay& replay() const { return Replays()[GetParam()]; }
  size_t num_sites() const {
    return std::max<size_t>(replay().overflow_sites.size(), 1);
  }
};

std::string NameOf(const testing::TestParamInfo<size_t>& info) {
  return testutil::TestName(Replays()[info.param].name);
}

TEST_P(StepsReplayTest, AgreesAtEveryStageAndNumberOfRanks) {
  size_t turn = 0;
  for (const Cut& cut : Cuts()) {
    const size_t site = turn++ % num_sites();
    testutil::RunConnectedRanks(
        cut.num_ranks, [&](const std::shared_ptr<Communicator>& ranks) {
          const Deviation worst =
              testutil::RunReplay(Parameters(), replay(), cut.cut, ranks, site);
          EXPECT_LE(worst.ratio, 1)
              << worst.where << " at stage " << cut.cut.stage << ", "
              << cut.num_ranks << " ranks";
          EXPECT_GT(worst.ratio, 0) << "nothing was compared";
        });
    if (HasFailure()) return;
  }
}

TEST_P(StepsReplayTest, AgreesOnNvme) {
  const testutil::Scratch scratch;
  for (const int32_t num_ranks : {1, 3}) {
    ReplayCut cut{.stage = num_ranks == 1 ? 2 : 3,
                  .nvme_directory = scratch.path().string()};
    testutil::RunConnectedRanks(
        num_ranks, [&](const std::shared_ptr<Communicator>& ranks) {
          const Deviation worst =
              testutil::RunReplay(Parameters(), replay(), cut, ranks, 0);
          EXPECT_LE(worst.ratio, 1) << worst.where;
          EXPECT_GT(worst.ratio, 0) << "nothing was compared";
        });
  }
}

TEST_P(StepsReplayTest, AgreesWithTheOracle) {
  for (size_t site = 0; site < num_sites(); ++site) {
    const Deviation worst = testutil::RunOracle(
        Parameters(), replay(), Mistake::kNone, INT64_MAX, site);
    EXPECT_LE(worst.ratio, 0.25) << worst.where;
    EXPECT_GT(worst.ratio, 0) << "nothing was compared";
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, StepsReplayTest,
                         testing::Range<size_t>(0, Replays().size()), NameOf);

class MistakeTest
    : public testing::TestWithParam<std::pair<Mistake, std::string>> {};

// Early states show every mistake; later ones only cost time.
constexpr int64_t kLastStep = 10;

TEST_P(MistakeTest, IsRejectedByTheSameComparison) {
  for (const StepsReplay& replay : Replays()) {
    const size_t num_sites = std::max<size_t>(replay.overflow_sites.size(), 1);
    for (size_t site = 0; site < num_sites; ++site) {
      const Deviation worst = testutil::RunOracle(
          Parameters(), replay, GetParam().first, kLastStep, site);
      if (worst.ratio > 1) return;
    }
  }
  FAIL() << "no replay shows this mistake";
}

INSTANTIATE_TEST_SUITE_P(All, MistakeTest,
                         testing::ValuesIn(oracle::AllMistakes()),
                         [](const auto& test) { return test.param.second; });

}  // namespace
}  // namespace muonstore
