// Model files that contradict each other or themselves: opening refuses them,
// also where the numbers of elements agree.

#include "formats/deepspeed/model_agreement.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/deepspeed/checkpoint.h"
#include "muonstore/file_system.h"
#include "tests/deepspeed/crafted.h"

namespace muonstore::deepspeed {
namespace {

using Value = PythonValue;

// p3 is frozen, and not square here.
CheckpointSpec FrozenSpec(int stage) {
  CheckpointSpec spec = CraftedSpec(stage);
  spec.parameters[3].dims = {2, 6};
  return spec;
}

TEST(ModelAgreementTest, FrozenShapesAgainstTheModule) {
  Crafted crafted(FrozenSpec(2));
  crafted.ExpectSound();
  crafted.model().Get("frozen_param_shapes").Set("p3", Value::Size({6, 2}));
  crafted.ExpectDataLoss({"module and frozen_param_shapes", "two shapes", "p3",
                          "[6, 2]", "[2, 6]", crafted.model_name()});
}

TEST(ModelAgreementTest, FrozenShapesAgainstTheFragments) {
  Crafted crafted(FrozenSpec(2));
  crafted.model().Get("frozen_param_fragments").Get("p3").tensor().shape = {12};
  crafted.ExpectDataLoss({"frozen_param_fragments and frozen_param_shapes",
                          "p3", "[2, 6]", "[12]"});
}

TEST(ModelAgreementTest, FrozenShapesOfOneRank) {
  for (const int rank : {0, 1}) {
    Crafted crafted(FrozenSpec(3));
    crafted.ExpectSound();
    crafted.model(rank)
        .Get("frozen_param_shapes")
        .Set("p3", Value::Size({6, 2}));
    crafted.ExpectDataLoss({"frozen_param_shapes differs between ranks", "p3",
                            "[6, 2]", "[2, 6]", crafted.model_name(1)});
  }
}

TEST(ModelAgreementTest, AFrozenParameterThatOneRankDoesNotList) {
  Crafted crafted(FrozenSpec(3));
  crafted.model(1).Get("frozen_param_shapes").Erase("p3");
  crafted.ExpectDataLoss({"frozen_param_shapes differs between ranks",
                          "p3 [2, 6] as in rank 0", "found nothing"});
}

TEST(ModelAgreementTest, AParameterThatIsTrainedAndFrozen) {
  for (const int stage : {2, 3}) {
    Crafted crafted(FrozenSpec(stage));
    for (const int rank : {0, 1}) {
      crafted.model(rank)
          .Get("frozen_param_shapes")
          .Append("p0", Value::Size({4, 6}));
    }
    crafted.ExpectDataLoss({"as trained and as frozen", "p0"});
  }
}

TEST(ModelAgreementTest, ParamShapesOfOneRank) {
  for (const int rank : {0, 1}) {
    Crafted transposed(3);
    transposed.model(rank)
        .Get("param_shapes")
        .at(0)
        .Set("p0", Value::Size({6, 4}));
    transposed.ExpectDataLoss({"param_shapes of flat group 0 differs", "p0",
                               "[6, 4]", "[4, 6]", transposed.model_name(1)});
  }
  // The same elements under names that changed places.
  CheckpointSpec spec = CraftedSpec(3);
  spec.parameters[1].dims = {4, 6};
  Crafted renamed(spec);
  renamed.ExpectSound();
  Value& shapes = renamed.model(1).Get("param_shapes").at(0);
  shapes.Erase("p0");
  shapes.Append("p0", Value::Size({4, 6}));
  renamed.ExpectDataLoss({"p0 [4, 6] as in rank 0", "found p1 [4, 6]"});
  Crafted shorter(3);
  shorter.model(1).Get("param_shapes").RemoveLast();
  shorter.ExpectDataLoss({"number of flat groups in param_shapes"});
}

TEST(ModelAgreementTest, ModelFilesOfAnotherSave) {
  const std::vector<std::pair<const char*, Value>> changes = {
      {"global_steps", Value::Int(6)},  {"global_steps", Value()},
      {"skipped_steps", Value::Int(1)}, {"global_samples", Value::Int(80)},
      {"dp_world_size", Value::Int(3)}, {"ds_version", Value::Str("0.19.7")},
      {"buffer_names", Value::List()}};
  for (const auto& [key, value] : changes) {
    CheckpointSpec spec = CraftedSpec(3);
    spec.num_buffers = 1;
    Crafted crafted(spec);
    crafted.ExpectSound();
    crafted.model(1).Set(key, value);
    crafted.ExpectDataLoss(
        {"differs between ranks", "different saves", crafted.model_name(1)});
  }
}

// That is what keeps a listing of a thousand ranks fast.
TEST(ModelAgreementTest, HeadersOfRankZeroAloneReadNoOtherModel) {
  Crafted crafted(3);
  crafted.model(1).Set("global_steps", Value::Int(6));
  EXPECT_THROW(crafted.Open(), Error);
  EXPECT_NO_THROW(DeepSpeedCheckpoint::Open(PosixFileSystem(), crafted.tag(),
                                            {.rank_zero_only = true}));
}

}  // namespace
}  // namespace muonstore::deepspeed
