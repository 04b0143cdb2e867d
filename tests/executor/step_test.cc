#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/executor.h"
#include "tests/executor/step_model.h"
#include "tests/store/store_ranks.h"

namespace muonstore {
namespace {

using ::testing::Each;
using testutil::AccumulateAll;
using testutil::AllState;
using testutil::MakeStepStore;
using testutil::RunConnectedRanks;
using testutil::StateBytes;
using testutil::StepOptionsOf;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The state after `steps` steps of one rank at stage 2.
StateBytes Reference(int steps, const ExecutorOptions* with = nullptr) {
  const auto store = MakeStepStore(MakeSingleCommunicator(), {});
  OffloadExecutor executor(*store, with ? *with : StepOptionsOf(*store));
  for (int step = 1; step <= steps; ++step) {
    AccumulateAll(*store, executor, static_cast<uint64_t>(step));
    executor.Step();
  }
  return AllState(*store);
}

// Which keys differ, for messages.
std::vector<std::string> Differences(const StateBytes& a, const StateBytes& b) {
  std::vector<std::string> keys;
  for (const auto& [key, bytes] : a) {
    if (!b.contains(key) || b.at(key) != bytes) keys.push_back(key);
  }
  return keys;
}

class StepBitsTest
    : public ::testing::TestWithParam<std::tuple<int32_t, int32_t, bool>> {};

TEST_P(StepBitsTest, AreThoseOfOneRank) {
  const auto [stage, num_ranks, overlap] = GetParam();
  const StateBytes reference = Reference(3);
  RunConnectedRanks(num_ranks, [&, stage = stage,
                                overlap = overlap](const auto& communicator) {
    const auto store = MakeStepStore(communicator, {.stage = stage});
    ExecutorOptions options = StepOptionsOf(*store);
    options.overlap = overlap;
    options.num_threads = communicator->rank() % 2 + 1;
    OffloadExecutor executor(*store, options);
    for (uint64_t step = 1; step <= 3; ++step) {
      AccumulateAll(*store, executor, step);
      const StepReport report = executor.Step();
      EXPECT_FALSE(report.overflow);
      EXPECT_EQ(report.num_orthogonalized, 8);
    }
    EXPECT_THAT(Differences(reference, AllState(*store)), ::testing::IsEmpty());
    EXPECT_EQ(store->record().steps, 3);
    EXPECT_THAT(store->record().group_steps, Each(3));
    executor.Close();
    store->Close();
  });
}

INSTANTIATE_TEST_SUITE_P(Cuts, StepBitsTest,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::Values(1, 2, 3, 4, 9),
                                            ::testing::Bool()));

TEST(StepTest, EachMatrixIsOrthogonalizedOnceOverAllRanks) {
  RunConnectedRanks(3, [](const auto& communicator) {
    const auto store = MakeStepStore(communicator, {.stage = 3});
    OffloadExecutor executor(*store, StepOptionsOf(*store));
    AccumulateAll(*store, executor, 1);
    const StepReport report = executor.Step();
    std::array<int64_t, 1> here = {report.num_orthogonalized_here};
    communicator->AllReduce(here, ReduceOp::kSum);
    EXPECT_EQ(here[0], 8);
    EXPECT_GT(report.received_bytes, 0U);
    EXPECT_GT(report.peak_gather_bytes, 0U);
  });
}

TEST(StepTest, ASingleRankGathersNothing) {
  const auto store = MakeStepStore(MakeSingleCommunicator(), {});
  OffloadExecutor executor(*store, StepOptionsOf(*store));
  AccumulateAll(*store, executor, 1);
  const StepReport report = executor.Step();
  EXPECT_EQ(report.received_bytes, 0U);
  EXPECT_EQ(report.peak_gather_bytes, 0U);
  EXPECT_EQ(report.num_orthogonalized_here, 8);
}

// One bad element anywhere, on one rank alone: no state of any rank changes.
class OverflowTest : public ::testing::TestWithParam<std::string> {};

TEST_P(OverflowTest, LeavesEveryBitAsItWas) {
  const std::string name = GetParam();
  RunConnectedRanks(3, [&](const auto& communicator) {
    const auto store = MakeStepStore(communicator, {.stage = 2});
    OffloadExecutor executor(*store, StepOptionsOf(*store));
    AccumulateAll(*store, executor, 1);
    executor.Step();
    const StateBytes before = AllState(*store);

    for (const ParameterSpec& parameter : store->parameters()) {
      if (parameter.optimizer == Optimizer::kNone) continue;
      auto values = testutil::RandomValues(parameter, 2);
      if (parameter.name == name) {
        values.back() = name == "norm.weight" ? kNaN : INFINITY;
      }
      executor.Accumulate(parameter.name,
                          {.data = std::as_bytes(std::span(values))});
    }
    const StepReport report = executor.Step();
    EXPECT_TRUE(report.overflow);
    EXPECT_EQ(report.num_nonfinite, 1);
    EXPECT_EQ(report.num_orthogonalized, 0);
    EXPECT_EQ(AllState(*store), before);
    EXPECT_EQ(store->record().steps, 1);
    EXPECT_EQ(store->record().skipped_steps, 1);
    EXPECT_THAT(store->record().group_steps, Each(1));
    EXPECT_EQ(store->generation(name, StateKind(kMaster)), 2U);

    // And the run goes on as if the step had never been.
    AccumulateAll(*store, executor, 2);
    EXPECT_FALSE(executor.Step().overflow);
    const StateBytes after = AllState(*store);
    EXPECT_THAT(Differences(Reference(2), after), ::testing::IsEmpty());
  });
}

INSTANTIATE_TEST_SUITE_P(Where, OverflowTest,
                         ::testing::Values("embed.weight", "norm.weight",
                                           "mlp.up.weight", "experts.weight"),
                         [](const auto& test) {
                           return test.param.substr(0, test.param.find('.'));
                         });

TEST(StepTest, AnOverflowThatOneRankWasToldOfIsAllRanks) {
  RunConnectedRanks(2, [&](const auto& communicator) {
    const auto store = MakeStepStore(communicator, {.stage = 2});
    OffloadExecutor executor(*store, StepOptionsOf(*store));
    const StateBytes before = AllState(*store);
    AccumulateAll(*store, executor, 1);
    const StepReport report =
        executor.Step({.found_overflow = communicator->rank() == 1});
    EXPECT_TRUE(report.overflow);
    EXPECT_EQ(report.num_nonfinite, 1);
    EXPECT_EQ(AllState(*store), before);
  });
}

TEST(StepTest, GradientsWhoseSquaresHaveNoFloatAreAnOverflow) {
  for (const float scale : {1.0F, 0x1p-20F}) {
    const auto store = MakeStepStore(MakeSingleCommunicator(), {});
    const StateBytes before = AllState(*store);
    OffloadExecutor executor(*store, StepOptionsOf(*store));
    AccumulateAll(*store, executor, 1, 1e30F * scale);
    const StepReport report = executor.Step({.loss_scale = scale});
    EXPECT_TRUE(report.overflow);
    EXPECT_EQ(report.num_nonfinite, 0);
    EXPECT_EQ(AllState(*store), before);
    // What is large and sound is stepped.
    AccumulateAll(*store, executor, 1, 1e16F * scale);
    EXPECT_FALSE(executor.Step({.loss_scale = scale}).overflow);
  }
}

TEST(StepTest, NoLossScaleChangesABit) {
  const StateBytes reference = Reference(1);
  for (const float scale : {1.0F, 4096.0F, 0.0078125F}) {
    const auto store = MakeStepStore(MakeSingleCommunicator(), {});
    OffloadExecutor executor(*store, StepOptionsOf(*store));
    AccumulateAll(*store, executor, 1, scale);
    executor.Step({.loss_scale = scale});
    EXPECT_THAT(Differences(reference, AllState(*store)), ::testing::IsEmpty())
        << scale;
  }
}

TEST(StepTest, MicroBatchesAreAveraged) {
  const StateBytes reference = Reference(1);
  const auto store = MakeStepStore(MakeSingleCommunicator(), {});
  OffloadExecutor executor(*store, StepOptionsOf(*store));
  // 1/2, 3/2, 1, 1 of the same gradient: sums of few bits are exact.
  for (const float part : {0.5F, 1.5F, 1.0F, 1.0F}) {
    AccumulateAll(*store, executor, 1, part);
  }
  executor.Step();
  EXPECT_THAT(Differences(reference, AllState(*store)), ::testing::IsEmpty());
}

TEST(StepTest, MicroBatchesAreSummedOnRequest) {
  const auto store = MakeStepStore(MakeSingleCommunicator(), {});
  ExecutorOptions options = StepOptionsOf(*store);
  options.average_micro_batches = false;
  OffloadExecutor executor(*store, options);
  AccumulateAll(*store, executor, 1, 0.25F);
  AccumulateAll(*store, executor, 1, 0.75F);
  const StepReport report = executor.Step();
  EXPECT_THAT(Differences(Reference(1), AllState(*store)),
              ::testing::IsEmpty());
  EXPECT_GT(report.norm, 0);
}

TEST(StepTest, TheNormIsThatOfAllTrueGradients) {
  for (const float scale : {1.0F, 256.0F}) {
    const auto store = MakeStepStore(MakeSingleCommunicator(), {});
    double sum = 0;
    for (const ParameterSpec& parameter : store->parameters()) {
      if (parameter.optimizer == Optimizer::kNone) continue;
      for (const float value : testutil::RandomValues(parameter, 5)) {
        sum += double{value} * double{value};
      }
    }
    ExecutorOptions options = StepOptionsOf(*store);
    options.max_norm = 0.5;
    OffloadExecutor executor(*store, options);
    AccumulateAll(*store, executor, 5, scale);
    const StepReport report = executor.Step({.loss_scale = scale});
    EXPECT_NEAR(report.norm, std::sqrt(sum), 1e-12 * std::sqrt(sum));
    EXPECT_NEAR(report.clip_factor, 0.5 / (report.norm + 1e-6), 1e-15);
  }
}

TEST(StepTest, AChangedLearningRateTakesEffectAtOnce) {
  const auto store = MakeStepStore(MakeSingleCommunicator(), {});
  ExecutorOptions options = StepOptionsOf(*store);
  OffloadExecutor executor(*store, options);
  const StateBytes before = AllState(*store);
  executor.group(0).lr = 0;
  executor.group(1).lr = 0;
  AccumulateAll(*store, executor, 1);
  executor.Step();
  const StateBytes after = AllState(*store);
  EXPECT_EQ(after.at("mlp.up.weight/master"),
            before.at("mlp.up.weight/master"));
  EXPECT_EQ(after.at("norm.weight/weight"), before.at("norm.weight/weight"));
  EXPECT_NE(after.at("mlp.up.weight/momentum"),
            before.at("mlp.up.weight/momentum"));
}

TEST(StepTest, ComputeWeightsAreTheRoundedMasters) {
  const StateBytes state = Reference(2);
  const auto& master = state.at("mlp.up.weight/master");
  const auto& weight = state.at("mlp.up.weight/weight");
  std::vector<std::byte> rounded(weight.size());
  std::vector<float> floats(master.size() / sizeof(float));
  std::memcpy(floats.data(), master.data(), master.size());
  ConvertFromF32(floats, DType::kBF16, rounded);
  EXPECT_EQ(weight, rounded);
  EXPECT_EQ(state.at("norm.weight/weight"), state.at("norm.weight/master"));
}

TEST(StepTest, ATightGatherLimitChangesNoBit) {
  const StateBytes reference = Reference(2);
  RunConnectedRanks(2, [&](const auto& communicator) {
    const auto store = MakeStepStore(communicator, {.stage = 3});
    ExecutorOptions options = StepOptionsOf(*store);
    options.max_gather_bytes = 64 * 4;  // The largest matrix is 8 x 8.
    OffloadExecutor executor(*store, options);
    for (uint64_t step = 1; step <= 2; ++step) {
      AccumulateAll(*store, executor, step);
      EXPECT_LE(executor.Step().peak_gather_bytes, options.max_gather_bytes);
    }
    EXPECT_THAT(Differences(reference, AllState(*store)), ::testing::IsEmpty());
  });
}

TEST(StepTest, EveryTierGivesTheSameBits) {
  const StateBytes reference = Reference(2);
  for (const auto& tier : {std::shared_ptr<Tier>(MakePinnedHostTier()),
                           std::shared_ptr<Tier>(MakeSharedHostTier())}) {
    RunConnectedRanks(2, [&](const auto& communicator) {
      const auto store = MakeStepStore(
          communicator, {.stage = 2, .tiers = {.rest = {.tier = tier}}});
      OffloadExecutor executor(*store, StepOptionsOf(*store));
      for (uint64_t step = 1; step <= 2; ++step) {
        AccumulateAll(*store, executor, step);
        executor.Step();
      }
      EXPECT_THAT(Differences(reference, AllState(*store)),
                  ::testing::IsEmpty())
          << tier->name();
    });
  }
}

}  // namespace
}  // namespace muonstore
