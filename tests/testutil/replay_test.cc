#include "tests/testutil/replay.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testutil/fixtures.h"

namespace muonstore::testutil {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Gt;
using ::testing::IsSupersetOf;
using ::testing::SizeIs;

int64_t Product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1},
                         std::multiplies<>());
}

TEST(Replay, ParametersAreThoseOfTheModelInItsOrder) {
  const std::vector<ReplayParameter> parameters = ReadReplayParameters();
  ASSERT_THAT(parameters, SizeIs(15));
  EXPECT_EQ(parameters[0].name, "sq");
  EXPECT_EQ(parameters[1].kind, "qkv");
  EXPECT_EQ(parameters[8].shape, (std::vector<int64_t>{8, 3, 3, 3}));
  for (const ReplayParameter& parameter : parameters) {
    const auto size = static_cast<size_t>(Product(parameter.shape));
    EXPECT_THAT(parameter.init, SizeIs(size)) << parameter.name;
    EXPECT_GE(parameter.gradients.size(), 6U) << parameter.name;
    EXPECT_THAT(parameter.gradients, Each(SizeIs(size))) << parameter.name;
  }
}

TEST(Replay, StatesComeWithTolerances) {
  const StepsReplay replay = ReadStepsReplay("base");
  EXPECT_EQ(replay.momentum, 0.95);
  EXPECT_TRUE(replay.nesterov);
  ASSERT_TRUE(replay.expected.contains(2));
  const ExpectedTensor& qkv = replay.expected.at(2).at("param/qkv");
  EXPECT_THAT(qkv.values, SizeIs(72 * 24));
  EXPECT_GT(qkv.tolerance, 0);
  EXPECT_LE(qkv.strict_tolerance, qkv.tolerance);
}

TEST(Replay, EveryVariantIsThere) {
  EXPECT_THAT(
      StepsReplayNames(),
      IsSupersetOf({"base", "plain-momentum", "accumulate-nesterov",
                    "accumulate-plain", "matchrms-sched-wd", "pe5", "perhead",
                    "perblock-packed", "perblock-interleaved", "clip-true",
                    "clip-deepspeed", "microbatch3"}));
  EXPECT_EQ(ReadStepsReplay("microbatch3").micro_batches, 3);
  EXPECT_EQ(ReadStepsReplay("clip-deepspeed").clip, "deepspeed");
  EXPECT_TRUE(ReadStepsReplay("matchrms-sched-wd").match_rms);
  EXPECT_EQ(ReadStepsReplay("perblock-packed").split, "qkv_packed");
}

TEST(Replay, DeepSpeedStepsHaveAveragedGradientsAndAFinalState) {
  EXPECT_THAT(DeepSpeedReplayNames(), Contains("s1-ws2-fp32-cpu-base"));
  for (const std::string& name : DeepSpeedReplayNames()) {
    const DeepSpeedReplay replay = ReadDeepSpeedReplay(name);
    ASSERT_THAT(replay.steps, SizeIs(3)) << name;
    EXPECT_THAT(replay.steps[0].gradients, SizeIs(25)) << name;
    EXPECT_THAT(replay.steps[2].after, SizeIs(Gt(25U))) << name;
    EXPECT_GT(replay.steps[2].norm, 10) << name;
  }
}

}  // namespace
}  // namespace muonstore::testutil
