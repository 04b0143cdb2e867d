// Real DeepSpeed runs, continued: a store that is loaded from the checkpoint of
// a run and fed with its gradients reaches the state that DeepSpeed reached.

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "formats/deepspeed/checkpoint.h"
#include "muonstore/load.h"
#include "muonstore/run_options.h"
#include "tests/executor/replay_run.h"
#include "tests/store/store_ranks.h"
#include "tests/testutil/fixtures.h"

namespace muonstore {
namespace {

using testutil::DeepSpeedReplay;
using testutil::DeepSpeedReplayStep;
using testutil::Deviation;

std::unique_ptr<Checkpoint> OpenSource(const std::string& name) {
  return deepspeed::DeepSpeedCheckpoint::Open(
      PosixFileSystem(),
      (testutil::FindDeepSpeedCase(name).folder / "ckpt/step5").string(), {});
}

// fp16 momentum without offload is in units of the loss scale, in the file and
// in what was recorded.
double MomentumUnit(const Checkpoint& source, const DeepSpeedReplay& replay) {
  const auto& momentum = source.info().momentum;
  return momentum && momentum->unit == MomentumUnit::kLossScaled
             ? replay.steps.front().loss_scale
             : 1;
}

testutil::StateReader ReaderOf(StateStore& store, double momentum_unit) {
  return [&store, momentum_unit](const std::string& key) {
    const size_t slash = key.find('/');
    const StateKind kind = CanonicalStateKind(key.substr(0, slash));
    const GatheredTensor tensor = store.Gather(key.substr(slash + 1), kind);
    std::vector<double> values(tensor.f32().begin(), tensor.f32().end());
    if (kind == kMomentum) {
      for (double& value : values) value *= momentum_unit;
    }
    return values;
  };
}

// `norm_tolerance` is relative: DeepSpeed rounds 16-bit updates before it takes
// their norm.
void Step(OffloadExecutor& executor, const StateStore& store,
          const DeepSpeedReplayStep& step, double norm_tolerance) {
  for (const ParameterSpec& spec : store.parameters()) {
    const std::vector<float>& gradient = step.gradients.at(spec.name);
    executor.Accumulate(spec.name, {.data = std::as_bytes(std::span(gradient)),
                                    .parameter_shape = spec.shape});
  }
  executor.group(0).lr = step.lr_muon;
  executor.group(1).lr = step.lr_adam;
  const StepReport report = executor.Step({.loss_scale = step.loss_scale});
  EXPECT_FALSE(report.overflow);
  EXPECT_NEAR(report.norm / step.norm, 1, norm_tolerance);
  EXPECT_NEAR(report.clip_factor * step.norm, 1, norm_tolerance);
}

// Loads, steps to the end and compares every recorded state.
void Continue(const DeepSpeedReplay& replay, int32_t stage,
              std::shared_ptr<Communicator> ranks) {
  const auto source = OpenSource(replay.source_case);
  std::vector<ParameterSpec> specs = SpecsOf(*source);
  Partitioning partitioning =
      Partitioning::Build(specs, {.stage = stage, .num_ranks = ranks->size()});
  StateStore store(std::move(specs), std::move(partitioning),
                   {.communicator = std::move(ranks)});
  const double unit = MomentumUnit(*source, replay);
  LoadCheckpoint(store, *source, {.momentum_scale = unit});
  EXPECT_EQ(store.record().clipping, ClippingMode::kDeepSpeed);
  OffloadExecutor executor(store, RunOptionsOf(*source).executor);
  bool compared = false;
  for (const DeepSpeedReplayStep& step : replay.steps) {
    Step(executor, store, step, replay.f32_gradients ? 1e-5 : 3e-3);
    if (step.after.empty()) continue;
    const Deviation worst = testutil::Compare(step.after, ReaderOf(store, unit),
                                              /*strict=*/replay.f32_gradients);
    EXPECT_LE(worst.ratio, 1) << worst.where;
    compared = true;
  }
  EXPECT_TRUE(compared);
  EXPECT_EQ(store.record().steps, 8);
  executor.Close();
  store.Close();
}

class DeepSpeedReplayTest : public testing::TestWithParam<std::string> {};

TEST_P(DeepSpeedReplayTest, ReachesDeepSpeedsStateAtEveryPartitioning) {
  const DeepSpeedReplay replay = testutil::ReadDeepSpeedReplay(GetParam());
  for (int32_t stage = 1; stage <= 3; ++stage) {
    for (int32_t num_ranks = 1; num_ranks <= 4; ++num_ranks) {
      SCOPED_TRACE(testing::Message()
                   << "stage " << stage << ", " << num_ranks << " ranks");
      testutil::RunConnectedRanks(
          num_ranks, [&](const std::shared_ptr<Communicator>& ranks) {
            Continue(replay, stage, ranks);
          });
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, DeepSpeedReplayTest,
                         testing::ValuesIn(testutil::DeepSpeedReplayNames()),
                         [](const auto& test) {
                           return testutil::TestName(test.param);
                         });

}  // namespace
}  // namespace muonstore
