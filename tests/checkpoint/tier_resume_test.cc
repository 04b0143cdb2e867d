// Runs that are killed after a save and go on with other ranks, another stage
// and state on other tiers, as if nothing had happened.
#include <csignal>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "muonstore/resume.h"
#include "muonstore/save.h"
#include "tests/checkpoint/live_run.h"
#include "tests/store/store_ranks.h"
#include "tests/testutil/scratch.h"

namespace muonstore {
namespace {

using testutil::LiveRun;
using testutil::RunConnectedRanks;
using testutil::StateBytes;
using testutil::StepSetup;

// The step before the save is skipped, and so is one after it.
constexpr int64_t kSaved = 5;
constexpr int64_t kEnd = 2 * kSaved;

// Masters of all ranks' segments are above 1 MiB on up to three ranks, moments
// of Adam below it: some segments of a run on NVMe are resident.
std::vector<ParameterSpec> Model() {
  std::vector<ParameterSpec> model = {{.name = "embed.weight",
                                       .shape = Shape({300, 500}),
                                       .weight_dtype = DType::kBF16,
                                       .group = 1,
                                       .optimizer = Optimizer::kAdam}};
  for (int i = 0; i < 70; ++i) {
    model.push_back({.name = "layers." + std::to_string(i) + ".weight",
                     .shape = Shape({128 + i % 3, 128}),
                     .weight_dtype = DType::kBF16});
  }
  return model;
}

enum class On {
  kHost,  // Shared where there are several ranks.
  kNvme,
  kNvmeMomentumResident,
  kNvmeMasters,
};

struct Place {
  On on = On::kHost;
  int32_t stage = 2;
  int32_t num_ranks = 1;
  SwapMode mode = SwapMode::kPipelined;

  friend void PrintTo(const Place& place, std::ostream* out) {
    *out << "tier " << static_cast<int>(place.on) << " stage " << place.stage
         << " ranks " << place.num_ranks << " mode "
         << static_cast<int>(place.mode);
  }
};

StepSetup SetupOf(const Place& place, const std::string& directory) {
  StepSetup setup{
      .stage = place.stage, .model = Model(), .swap_mode = place.mode};
  if (place.on == On::kHost) return setup;
  const KindPolicy nvme{.tier = MakeNvmeTier({.directory = directory})};
  if (place.on == On::kNvmeMasters) {
    setup.tiers.kinds[StateKind(kMaster)] = nvme;
    return setup;
  }
  setup.tiers.rest = nvme;
  if (place.on == On::kNvmeMomentumResident) {
    setup.tiers.kinds[StateKind(kMomentum)] = {};
  }
  return setup;
}

class TierResumeTest
    : public testing::TestWithParam<std::tuple<Place, Place, bool>> {};

TEST_P(TierResumeTest, EqualsTheUninterruptedRun) {
  const auto& [from, to, is_async] = GetParam();
  const testutil::Scratch scratch;
  const std::string nvme = scratch.path().string();
  const std::string root = (scratch / "run").string();
  testutil::RunKilledRanks(
      from.num_ranks, [&, from = from, is_async = is_async](const auto& ranks) {
        LiveRun run(ranks, SetupOf(from, nvme));
        Saver saver(run.store(), root);
        run.Steps(0, kSaved);
        const SaveHandle save = saver.Save("step5", {.asynchronous = is_async});
        if (is_async) run.Steps(kSaved, kSaved + 1);
        save.Wait();
        ranks->Barrier();
        raise(SIGKILL);
      });
  const StateBytes expected = testutil::StateAfter(kEnd, {.model = Model()});
  RunConnectedRanks(to.num_ranks, [&, to = to](const auto& ranks) {
    LiveRun run(ranks, SetupOf(to, nvme));
    EXPECT_EQ(Resume(run.store(), root).tag, "step5");
    run.Steps(kSaved, kEnd);
    const StateBytes found = run.State();
    for (const auto& [key, bytes] : expected) {
      EXPECT_TRUE(found.at(key) == bytes) << key;
    }
    run.Close();
  });
}

INSTANTIATE_TEST_SUITE_P(
    Tiers, TierResumeTest,
    testing::Combine(
        testing::Values(Place{.on = On::kHost, .stage = 2, .num_ranks = 2},
                        Place{.on = On::kNvme, .stage = 3, .num_ranks = 2},
                        Place{.on = On::kNvmeMomentumResident,
                              .stage = 2,
                              .num_ranks = 1,
                              .mode = SwapMode::kPartitioned}),
        testing::Values(
            Place{.on = On::kHost, .stage = 3, .num_ranks = 1},
            Place{.on = On::kNvme, .stage = 3, .num_ranks = 3},
            Place{.on = On::kNvme,
                  .stage = 1,
                  .num_ranks = 1,
                  .mode = SwapMode::kPartitioned},
            Place{.on = On::kNvmeMomentumResident, .stage = 1, .num_ranks = 2},
            Place{.on = On::kNvmeMasters, .stage = 2, .num_ranks = 2}),
        testing::Bool()));

}  // namespace
}  // namespace muonstore
