// State that the files should hold and do not: findings of opening and verify.

#include "formats/deepspeed/gaps.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/deepspeed/checkpoint.h"
#include "muonstore/file_system.h"
#include "tests/deepspeed/crafted.h"

namespace muonstore::deepspeed {
namespace {

using Value = PythonValue;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
constexpr auto kFault = Finding::Severity::kFault;
constexpr auto kWarning = Finding::Severity::kWarning;

Value& GroupOfRank(Crafted& crafted, int rank, size_t group) {
  return crafted.zero(rank)
      .Get("base_optimizer_state")
      .Get("param_groups")
      .at(group);
}

TEST(GapsTest, NothingIsMissing) {
  for (const int stage : {1, 2, 3}) {
    CheckpointSpec spec = CraftedSpec(stage);
    spec.num_buffers = 2;
    spec.tied = true;
    const Crafted crafted(spec);
    crafted.Open();
    EXPECT_THAT(crafted.Verify(), IsEmpty());
  }
}

TEST(GapsTest, StepsOfAdamThatAreAbsent) {
  for (const int stage : {1, 2, 3}) {
    Crafted crafted(stage);
    for (const int rank : {0, 1}) {
      crafted.state(rank, 1).Erase("step");
    }
    crafted.ExpectFinding(kFault, "step_missing",
                          {"no usable step", "group1", "found nothing"});
  }
}

TEST(GapsTest, StepsOfAdamThatAreNoIntegers) {
  for (const auto& [value, text] :
       std::vector<std::pair<Value, std::string>>{{Value(), "none"},
                                                  {Value::Float(5.5), "5.5"},
                                                  {Value::Str("5"), "5"}}) {
    Crafted crafted(2);
    for (const int rank : {0, 1}) {
      crafted.state(rank, 1).Set("step", value);
    }
    crafted.ExpectFinding(kFault, "step_missing", {"found " + text});
  }
}

TEST(GapsTest, AStepThatOneRankLacks) {
  for (const int rank : {0, 1}) {
    Crafted crafted(2);
    crafted.state(rank, 1).Erase("step");
    crafted.ExpectDataLoss({"step differs between ranks"});
  }
}

TEST(GapsTest, AStepThatOnlyTheGroupCounts) {
  Crafted crafted(2);
  for (const int rank : {0, 1}) {
    crafted.state(rank, 1).Erase("step");
    GroupOfRank(crafted, rank, 1).Set("step", Value::Int(5));
  }
  crafted.ExpectFinding(kWarning, "step_missing", {"the param group counts"});
}

// Without use_muon, Lion's one moment does not make it Adam.
TEST(GapsTest, OptimizersWithOneMomentNeedNoStep) {
  Crafted crafted(2);
  for (const int rank : {0, 1}) {
    crafted.state(rank, 1).Erase("step");
    crafted.state(rank, 1).Erase("exp_avg_sq");
    GroupOfRank(crafted, rank, 1).Erase("use_muon");
  }
  crafted.Open();
  EXPECT_THAT(crafted.Verify(), IsEmpty());
}

TEST(GapsTest, MomentsThatNoRankHolds) {
  Crafted crafted(2);
  for (const int rank : {0, 1}) {
    crafted.state(rank, 1).Erase("exp_avg_sq");
  }
  crafted.ExpectFinding(kFault, "state_missing", {"exp_avg_sq of group1"});
}

TEST(GapsTest, CountersWithoutAValue) {
  for (const Value& value : {Value(), Value::Str("5"), Value::Float(5)}) {
    Crafted steps(2);
    steps.model().Set("global_steps", value);
    steps.ExpectFinding(kFault, "counter_missing", {"global_steps"});
    Crafted skipped(2);
    skipped.model().Set("skipped_steps", value);
    skipped.ExpectFinding(kWarning, "counter_missing", {"skipped_steps"});
    Crafted samples(2);
    samples.model().Set("global_samples", value);
    samples.ExpectFinding(kWarning, "counter_missing", {"global_samples"});
  }
  Crafted absent(2);
  absent.model().Erase("global_steps");
  absent.ExpectFinding(kFault, "counter_missing", {"found nothing"});
}

TEST(GapsTest, WeightsThatTheModuleLacks) {
  for (const int stage : {1, 2, 3}) {
    Crafted crafted(stage);
    for (const int rank : {0, 1}) {
      crafted.model(stage == 3 ? rank : 0).Get("module").Set("p1", Value());
    }
    crafted.ExpectFinding(kFault, "weight_missing",
                          {"p1/weight", crafted.model_name(0)});
  }
}

TEST(GapsTest, FrozenWeightsThatTheModuleLacks) {
  Crafted crafted(2);
  crafted.model().Get("module").Erase("p3");
  crafted.ExpectFinding(kFault, "weight_missing", {"p3/weight"});
  // Where no list names them, they were left out on request.
  crafted.model().Set("frozen_param_shapes", Value());
  crafted.model().Set("frozen_param_fragments", Value());
  crafted.Open();
  EXPECT_THAT(crafted.Verify(), IsEmpty());
}

TEST(GapsTest, BuffersThatTheModuleLacks) {
  for (const int stage : {2, 3}) {
    CheckpointSpec spec = CraftedSpec(stage);
    spec.num_buffers = 2;
    Crafted crafted(spec);
    crafted.model().Get("module").Erase("buffer1");
    crafted.ExpectFinding(kFault, "buffer_missing", {"buffer1/buffer"});
  }
}

TEST(GapsTest, TiesOfLiveNamesAreIgnored) {
  Crafted crafted(2);
  crafted.model().Get("shared_params").Set("p0", Value::Str("p1"));
  crafted.ExpectFinding(kFault, "alias_contradicts", {"ties p0 to p1"});
  const auto checkpoint =
      DeepSpeedCheckpoint::Open(PosixFileSystem(), crafted.tag(), {});
  EXPECT_THAT(checkpoint->info().aliases, IsEmpty());
  EXPECT_TRUE(FindTensor(*checkpoint, {"p0", StateKind(kWeight)}).has_value());
}

// Their addresses are equal, which is how DeepSpeed finds ties.
TEST(GapsTest, TiesOfParametersWithoutElementsAreNone) {
  Crafted crafted(2);
  for (const char* name : {"empty", "empty1"}) {
    const Value value = Value::Tensor(
        {.shape = {0, 4}, .storage = std::make_shared<std::string>()});
    crafted.model().Get("module").Set(name, value);
    crafted.model().Get("frozen_param_fragments").Set(name, value);
    crafted.model().Get("frozen_param_shapes").Set(name, Value::Size({0, 4}));
  }
  crafted.model().Get("shared_params").Set("empty1", Value::Str("empty"));
  crafted.ExpectSound();
}

TEST(GapsTest, TiesToNamesThatDoNotExist) {
  CheckpointSpec spec = CraftedSpec(2);
  spec.tied = true;
  Crafted crafted(spec);
  crafted.model().Get("shared_params").Set("alias", Value::Str("p9"));
  crafted.ExpectFinding(kFault, "alias_contradicts", {"ties alias to p9"});
  const auto checkpoint =
      DeepSpeedCheckpoint::Open(PosixFileSystem(), crafted.tag(), {});
  EXPECT_TRUE(
      FindTensor(*checkpoint, {"alias", StateKind(kWeight)}).has_value());
  crafted.model().Get("shared_params").Set("alias", Value::Str("p3"));
  crafted.ExpectSound();
  EXPECT_THAT(DeepSpeedCheckpoint::Open(PosixFileSystem(), crafted.tag(), {})
                  ->info()
                  .aliases,
              ElementsAre(Pair("alias", "p3")));
}

TEST(GapsTest, AStageThatTheConfigDoesNotName) {
  for (const auto& [stage, named] : {std::pair{2, 1}, {1, 2}, {3, 2}}) {
    Crafted crafted(stage);
    for (const int rank : {0, 1}) {
      crafted.optim(rank)
          .Get("ds_config")
          .Get("zero_optimization")
          .Set("stage", Value::Int(named));
    }
    crafted.ExpectFinding(
        kWarning, "stage_differs",
        {"stage " + std::to_string(stage), "stage " + std::to_string(named)});
  }
}

}  // namespace
}  // namespace muonstore::deepspeed
