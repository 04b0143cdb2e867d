#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "muonstore/executor.h"
#include "tests/executor/step_model.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"

namespace muonstore {
namespace {

using ::testing::HasSubstr;
using testutil::AccumulateAll;
using testutil::AllState;
using testutil::MakeStepStore;
using testutil::RunConnectedRanks;
using testutil::StepOptionsOf;

class ExecutorCallsTest : public ::testing::Test {
 protected:
  ExecutorCallsTest()
      : store_(MakeStepStore(MakeSingleCommunicator(), {})),
        executor_(*store_, StepOptionsOf(*store_)) {}

  void ExpectRefused(const std::function<void()>& call, ErrorCode code,
                     const std::string& says) {
    EXPECT_EQ(CodeOf(call), code) << says;
    EXPECT_THAT(TextOf(call), HasSubstr(says));
  }

  std::unique_ptr<StateStore> store_;
  OffloadExecutor executor_;
};

TEST_F(ExecutorCallsTest, GradientsFitTheirParameter) {
  const std::vector<std::byte> bytes(54 * 4);
  const std::span<const std::byte> data(bytes);
  ExpectRefused([&] { executor_.Accumulate("mlp.up", {.data = data}); },
                ErrorCode::kNotFound, "mlp.up.weight");
  ExpectRefused([&] { executor_.Accumulate("frozen.weight", {.data = data}); },
                ErrorCode::kNotFound, "frozen.weight");
  ExpectRefused(
      [&] {
        executor_.Accumulate("mlp.up.weight",
                             {.data = data, .parameter_shape = Shape({6, 9})});
      },
      ErrorCode::kInvalidArgument, "[9, 6]");
  ExpectRefused(
      [&] {
        executor_.Accumulate("mlp.up.weight",
                             {.data = data, .first_element = 1});
      },
      ErrorCode::kInvalidArgument, "[0, 54)");
  ExpectRefused(
      [&] {
        executor_.Accumulate("mlp.up.weight",
                             {.data = data, .first_element = -1});
      },
      ErrorCode::kInvalidArgument, "from element -1");
  ExpectRefused(
      [&] { executor_.Accumulate("mlp.up.weight", {.data = data.first(7)}); },
      ErrorCode::kInvalidArgument, "7 bytes");
  ExpectRefused(
      [&] {
        executor_.Accumulate("mlp.up.weight",
                             {.dtype = DType::kF64, .data = data});
      },
      ErrorCode::kUnsupported, "f32, bf16 or f16");
}

TEST_F(ExecutorCallsTest, AStepNeedsCompleteGradients) {
  const auto before = AllState(*store_);
  ExpectRefused([&] { executor_.Step(); }, ErrorCode::kInvalidArgument,
                "AccumulateZero");
  AccumulateAll(*store_, executor_, 1);
  const std::vector<float> part(10, 1.0F);
  executor_.Accumulate("mlp.up.weight",
                       {.data = std::as_bytes(std::span(part))});
  ExpectRefused([&] { executor_.Step(); }, ErrorCode::kInvalidArgument,
                "10 of 54");
  EXPECT_EQ(AllState(*store_), before);
  // Nothing was lost: the rest of the micro-batch completes it.
  executor_.DiscardGradients();
  AccumulateAll(*store_, executor_, 1);
  EXPECT_FALSE(executor_.Step().overflow);
  ExpectRefused([&] { executor_.Step(); }, ErrorCode::kInvalidArgument,
                "micro-batches");
}

TEST_F(ExecutorCallsTest, AParameterWithoutAGradientIsZero) {
  for (const ParameterSpec& parameter : store_->parameters()) {
    if (parameter.optimizer != Optimizer::kNone) {
      executor_.AccumulateZero(parameter.name);
    }
  }
  const StepReport report = executor_.Step();
  EXPECT_EQ(report.norm, 0);
  const GatheredTensor momentum = store_->Gather("mlp.up.weight", "momentum");
  EXPECT_THAT(momentum.f32(), ::testing::Each(0.0F));
}

TEST_F(ExecutorCallsTest, LeasesAreDroppedBeforeAStep) {
  AccumulateAll(*store_, executor_, 1);
  {
    const ReadLease lease = store_->Read("mlp.up.weight", "momentum");
    ExpectRefused([&] { executor_.Step(); }, ErrorCode::kInvalidArgument,
                  "mlp.up.weight/momentum");
  }
  EXPECT_FALSE(executor_.Step().overflow);
}

TEST_F(ExecutorCallsTest, LossScalesAreExact) {
  AccumulateAll(*store_, executor_, 1);
  for (const double scale : {0.0, -1.0, std::nan(""), HUGE_VAL, 16777217.0}) {
    ExpectRefused([&] { executor_.Step({.loss_scale = scale}); },
                  ErrorCode::kInvalidArgument, "loss scale");
  }
  EXPECT_FALSE(executor_.Step({.loss_scale = 3}).overflow);
}

TEST_F(ExecutorCallsTest, GroupsExist) {
  ExpectRefused([&] { executor_.group(2); }, ErrorCode::kInvalidArgument,
                "below 2");
  ExpectRefused([&] { executor_.group(-1); }, ErrorCode::kInvalidArgument,
                "below 2");
  executor_.Close();
  ExecutorOptions options = StepOptionsOf(*store_);
  options.groups.pop_back();
  ExpectRefused([&] { OffloadExecutor executor(*store_, options); },
                ErrorCode::kInvalidArgument, "2 groups");
}

TEST_F(ExecutorCallsTest, AStoreHasOneExecutorAtATime) {
  const auto build = [&] {
    OffloadExecutor executor(*store_, StepOptionsOf(*store_));
  };
  ExpectRefused(build, ErrorCode::kInvalidArgument, "already");
  executor_.Close();
  build();
  build();
}

TEST_F(ExecutorCallsTest, HyperParametersThatMakeNoUpdateAreRefused) {
  const double nan = std::nan("");
  const auto before = AllState(*store_);
  AccumulateAll(*store_, executor_, 1);
  const GroupHyperParameters sound = executor_.group(0);
  using Member = double GroupHyperParameters::*;
  const std::vector<std::pair<Member, double>> bad = {
      {&GroupHyperParameters::lr, nan},
      {&GroupHyperParameters::lr, 1e300},
      {&GroupHyperParameters::weight_decay, HUGE_VAL},
      {&GroupHyperParameters::momentum, nan},
      {&GroupHyperParameters::momentum, 1.5},
      {&GroupHyperParameters::beta1, 1},
      {&GroupHyperParameters::beta2, 2},
      {&GroupHyperParameters::eps, -1}};
  for (const auto& [member, value] : bad) {
    executor_.group(0).*member = value;
    ExpectRefused([&] { executor_.Step(); }, ErrorCode::kInvalidArgument,
                  "param group 0");
    executor_.group(0) = sound;
  }
  executor_.set_max_norm(nan);
  ExpectRefused([&] { executor_.Step(); }, ErrorCode::kInvalidArgument,
                "max_norm");
  executor_.set_max_norm(1);
  EXPECT_EQ(AllState(*store_), before);
  EXPECT_FALSE(executor_.Step().overflow);
}

TEST_F(ExecutorCallsTest, AClosedExecutorSaysSo) {
  executor_.Close();
  executor_.Close();
  const std::vector<float> values(54);
  ExpectRefused(
      [&] {
        executor_.Accumulate("mlp.up.weight",
                             {.data = std::as_bytes(std::span(values))});
      },
      ErrorCode::kUnavailable, "closed");
  ExpectRefused([&] { executor_.Step(); }, ErrorCode::kUnavailable, "closed");
}

TEST_F(ExecutorCallsTest, APoisonedStoreIsNotStepped) {
  AccumulateAll(*store_, executor_, 1);
  store_->Poison("test");
  ExpectRefused([&] { executor_.Step(); }, ErrorCode::kUnavailable, "poisoned");
}

TEST(ExecutorRanksTest, AMatrixBeyondTheCapIsAnErrorOfTheConstructor) {
  RunConnectedRanks(2, [](const auto& communicator) {
    const auto store = MakeStepStore(communicator, {.stage = 3});
    ExecutorOptions options = StepOptionsOf(*store);
    options.max_gather_bytes = 100;
    const auto build = [&] { OffloadExecutor executor(*store, options); };
    EXPECT_EQ(CodeOf(build), ErrorCode::kResourceExhausted);
    EXPECT_THAT(TextOf(build), HasSubstr("max_gather_bytes"));
  });
}

TEST(ExecutorRanksTest, HyperParametersAreTheSameOnAllRanks) {
  RunConnectedRanks(2, [](const auto& communicator) {
    const auto store = MakeStepStore(communicator, {});
    OffloadExecutor executor(*store, StepOptionsOf(*store));
    const auto before = AllState(*store);
    AccumulateAll(*store, executor, 1);
    if (communicator->rank() == 1) executor.group(0).lr = 0.5;
    const auto step = [&] { executor.Step(); };
    EXPECT_EQ(CodeOf(step), ErrorCode::kInvalidArgument);
    EXPECT_EQ(AllState(*store), before);
    // The gradients are still there.
    executor.group(0).lr = 0.5;
    EXPECT_FALSE(executor.Step().overflow);
  });
}

TEST(ExecutorRanksTest, NewtonSchulzIsTheSameOnAllRanks) {
  RunConnectedRanks(2, [](const auto& communicator) {
    const auto store = MakeStepStore(communicator, {});
    ExecutorOptions options = StepOptionsOf(*store);
    if (communicator->rank() == 1) {
      options.newton_schulz.precision = NewtonSchulzPrecision::kBF16;
    }
    const auto build = [&] { OffloadExecutor executor(*store, options); };
    EXPECT_EQ(CodeOf(build), ErrorCode::kInvalidArgument);
    options.newton_schulz = {};
    build();
  });
}

TEST(ExecutorRanksTest, OneRanksMistakeStopsAll) {
  RunConnectedRanks(3, [](const auto& communicator) {
    const auto store = MakeStepStore(communicator, {.stage = 3});
    OffloadExecutor executor(*store, StepOptionsOf(*store));
    const auto before = AllState(*store);
    const bool late = communicator->rank() == 2;
    if (!late) AccumulateAll(*store, executor, 1);
    const auto step = [&] { executor.Step(); };
    EXPECT_EQ(CodeOf(step),
              late ? ErrorCode::kInvalidArgument : ErrorCode::kUnavailable);
    EXPECT_FALSE(store->poisoned());
    EXPECT_EQ(AllState(*store), before);
    if (late) AccumulateAll(*store, executor, 1);
    EXPECT_FALSE(executor.Step().overflow);
  });
}

TEST(ExecutorRanksTest, MicroBatchesAreTheSameOnAllRanks) {
  RunConnectedRanks(2, [](const auto& communicator) {
    const auto store = MakeStepStore(communicator, {.stage = 3});
    OffloadExecutor executor(*store, StepOptionsOf(*store));
    AccumulateAll(*store, executor, 1);
    if (communicator->rank() == 0) AccumulateAll(*store, executor, 1);
    const auto step = [&] { executor.Step(); };
    EXPECT_EQ(CodeOf(step), communicator->rank() == 1
                                ? ErrorCode::kInvalidArgument
                                : ErrorCode::kUnavailable);
  });
}

}  // namespace
}  // namespace muonstore
