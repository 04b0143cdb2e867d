// Sizes, counts and orders that contradict each other: each is refused with a
// typed error that names the file and what is wrong.

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/deepspeed/crafted.h"

namespace muonstore::deepspeed {
namespace {

using Value = PythonValue;
constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

TEST(CraftedLayoutTest, AParameterThatIsListedTwice) {
  Crafted two_groups(2);
  two_groups.model()
      .Get("param_shapes")
      .at(1)
      .Append("p0", Value::Size({4, 6}));
  two_groups.ExpectDataLoss({"listed twice", "p0", two_groups.model_name()});
  Crafted one_group(2);
  one_group.model().Get("param_shapes").at(0).Append("p1", Value::Size({3, 5}));
  one_group.ExpectDataLoss({"listed twice", "p1", one_group.model_name()});
}

TEST(CraftedLayoutTest, ShapesThatContradictTheModule) {
  Crafted crafted(2);
  crafted.model().Get("param_shapes").at(0).Set("p0", Value::Size({6, 4}));
  crafted.ExpectDataLoss({"two shapes", "p0", "[6, 4]", "[4, 6]"});
}

TEST(CraftedLayoutTest, ShapesOfAnotherSize) {
  for (const int stage : {1, 2, 3}) {
    Crafted larger(stage);
    Crafted shorter(stage);
    Crafted group(stage);
    for (int rank = 0; rank < (stage == 3 ? 2 : 1); ++rank) {
      larger.model(rank)
          .Get("param_shapes")
          .at(0)
          .Set("p0", Value::Size({40, 6}));
      shorter.model(rank).Get("param_shapes").at(0).Erase("p1");
      group.model(rank).Get("param_shapes").RemoveLast();
    }
    larger.ExpectDataLoss({"p0", "_states.pt"});
    shorter.ExpectDataLoss({"_states.pt"});
    group.ExpectDataLoss({"numbers of flat groups", group.optim_name(0)});
  }
}

TEST(CraftedLayoutTest, ShapesBeyondAllBounds) {
  const std::vector<std::vector<int64_t>> shapes = {
      {-4, 6},
      {kHuge},
      {kHuge, kHuge},
      {kHuge / 2, 3},
      {kHuge / 4, 2},
      {std::numeric_limits<int64_t>::min()},
      {1LL << 31, 1LL << 31}};
  for (const int stage : {1, 2, 3}) {
    for (const auto& shape : shapes) {
      Crafted crafted(stage);
      crafted.model().Get("param_shapes").at(0).Set("p0", Value::Size(shape));
      crafted.ExpectDataLoss({"_states.pt"});
    }
  }
}

TEST(CraftedLayoutTest, ShapesThatAreNoShapes) {
  for (const Value& shape : {Value(), Value::Str("4x6"), Value::Float(1.5)}) {
    Crafted crafted(2);
    crafted.model().Get("param_shapes").at(0).Set("p0", shape);
    crafted.ExpectDataLoss({crafted.model_name()});
  }
  for (const Value& list : {Value(), Value::Int(3), Value::Dict()}) {
    Crafted crafted(2);
    crafted.model().Set("param_shapes", list);
    crafted.ExpectDataLoss({crafted.model_name()});
  }
}

TEST(CraftedLayoutTest, GroupPaddings) {
  const std::vector<std::vector<int64_t>> paddings = {
      {5, 0}, {}, {1}, {-1, 0}, {kHuge, 0}, {1000000, 0}};
  for (const auto& list : paddings) {
    for (const int rank : {0, 1}) {
      Crafted crafted(2);
      crafted.zero(rank).Set("group_paddings", Value::Ints(list));
      crafted.ExpectDataLoss({crafted.optim_name(rank)});
    }
  }
  Crafted absent(2);
  absent.zero(1).Erase("group_paddings");
  absent.ExpectDataLoss({"group_paddings", absent.optim_name(1)});
}

TEST(CraftedLayoutTest, AlignmentPaddings) {
  const std::vector<std::vector<int64_t>> paddings = {
      {0}, {0, 0, 0}, {-1, 0}, {8, 0}, {kHuge, 0}, {kHuge, kHuge}};
  for (const auto& list : paddings) {
    Crafted crafted(2);
    for (const int rank : {0, 1}) {
      crafted.zero(rank).Get("param_alignment_paddings").at(0) =
          Value::Ints(list);
    }
    crafted.ExpectDataLoss({crafted.optim_name(0)});
  }
  Crafted differing(2);
  differing.zero(1).Get("param_alignment_paddings").at(0) = Value::Ints({8, 0});
  differing.ExpectDataLoss({"differ between ranks", differing.optim_name(1)});
}

TEST(CraftedLayoutTest, CountsOfRanks) {
  for (const int64_t count : {int64_t{0}, int64_t{3}, int64_t{-2}, kHuge}) {
    Crafted stage2(2);
    stage2.zero(1).Set("partition_count", Value::Ints({2, count}));
    stage2.ExpectDataLoss({stage2.optim_name(1)});
    Crafted stage3(3);
    stage3.zero(1).Set("partition_count", Value::Int(count));
    stage3.ExpectDataLoss({stage3.optim_name(1)});
  }
  for (const int64_t count : {int64_t{1}, int64_t{3}, kHuge}) {
    Crafted crafted(2);
    crafted.model().Set("dp_world_size", Value::Int(count));
    // The third of three ranks would be missing.
    crafted.ExpectDataLoss({"dp_world_size", count == 3
                                                 ? crafted.optim_name(2)
                                                 : crafted.model_name()});
  }
}

TEST(CraftedLayoutTest, MomentumOfOddSizes) {
  for (const int stage : {1, 2, 3}) {
    for (const int64_t size : {1, 19, 38, 40, 1000}) {
      Crafted crafted(stage);
      crafted.state(1, 0).Set("momentum_buffer", BF16(size));
      crafted.ExpectDataLoss({"momentum", crafted.optim_name(1)});
    }
    Crafted empty(stage);
    empty.state(0, 0).Set("momentum_buffer", BF16(0));
    empty.ExpectDataLoss({"momentum", empty.optim_name(0)});
  }
}

TEST(CraftedLayoutTest, MomentumThatIsNoTensor) {
  for (const Value& value : {Value(), Value::Int(3), Value::Str("x"),
                             Value::Dict(), Value::Ints({1})}) {
    Crafted crafted(2);
    crafted.state(0, 0).Set("momentum_buffer", value);
    crafted.ExpectDataLoss({"momentum", crafted.optim_name(0)});
  }
}

TEST(CraftedLayoutTest, OneRankWithoutState) {
  for (const int stage : {1, 2, 3}) {
    Crafted no_buffer(stage);
    no_buffer.state(1, 0).Erase("momentum_buffer");
    no_buffer.ExpectDataLoss(
        {"rank 1 holds no momentum", no_buffer.optim_name(1)});
    Crafted no_entry(stage);
    no_entry.zero(0)
        .Get(stage == 3 ? "optimizer_state_dict" : "base_optimizer_state")
        .Get("state")
        .EraseInt(1);
    no_entry.ExpectDataLoss(
        {"rank 0 holds no exp_avg", no_entry.optim_name(0)});
  }
}

TEST(CraftedLayoutTest, RanksOfTwoDTypes) {
  CheckpointSpec spec = CraftedSpec(2);
  Crafted narrow(spec);
  spec.momentum_dtype = DType::kF32;
  Crafted wide(spec);
  narrow.state(1, 0) = wide.state(1, 0);
  narrow.ExpectDataLoss(
      {"dtype differs", "momentum", "bf16", "f32", narrow.optim_name(1)});
}

TEST(CraftedLayoutTest, RanksOfTwoMomentumForms) {
  CheckpointSpec spec = CraftedSpec(2);
  spec.momentum_dtype = DType::kF32;
  Crafted whole(spec);
  spec.offloaded = true;
  Crafted partition(spec);
  whole.state(1, 0) = partition.state(1, 0);
  whole.ExpectDataLoss({"momentum", "optim_states.pt"});
}

TEST(CraftedLayoutTest, ParamGroupsThatNameNoFlatGroup) {
  for (const std::vector<int64_t>& params :
       {std::vector<int64_t>{2}, {-1}, {kHuge}}) {
    Crafted crafted(2);
    crafted.zero(0)
        .Get("base_optimizer_state")
        .Get("param_groups")
        .at(1)
        .Set("params", Value::Ints(params));
    crafted.ExpectDataLoss({crafted.optim_name(0)});
  }
}

TEST(CraftedLayoutTest, SlicesThatLieElsewhere) {
  for (const int64_t start : {int64_t{1}, int64_t{-1}, kHuge}) {
    Crafted crafted(2);
    Value address = Value::Dict();
    address.Set("numel", Value::Int(7));
    address.Set("start", Value::Int(start));
    crafted.zero(1)
        .Get("param_slice_mappings")
        .at(0)
        .Set("p1", Value::Object("deepspeed.utils.tensor_fragment",
                                 "fragment_address", address));
    crafted.ExpectDataLoss(
        {"param_slice_mappings", "p1", crafted.optim_name(1)});
  }
}

TEST(CraftedLayoutTest, MastersOfOtherSizesAndTypes) {
  for (const int stage : {1, 2, 3}) {
    const char* key =
        stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
    for (const int rank : {0, 1}) {
      for (const int64_t size : {0, 1, 18, 21, 400}) {
        Crafted crafted(stage);
        crafted.zero(rank).Get(key).at(0) = F32(size);
        crafted.ExpectDataLoss({"_states.pt"});
      }
      Crafted crafted(stage);
      crafted.zero(rank).Get(key).at(0) = Value::Int(3);
      crafted.ExpectDataLoss({"no tensor", crafted.optim_name(rank)});
      Crafted list(stage);
      list.zero(rank).Get(key).RemoveLast();
      list.ExpectDataLoss({"flat groups"});
    }
  }
}

}  // namespace
}  // namespace muonstore::deepspeed
