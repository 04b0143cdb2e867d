// Checkpoints that DeepSpeed would not write, or that are out of scope: each is
// refused with a typed error that names the file and what is wrong.

#include "tests/deepspeed/crafted.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/deepspeed/checkpoint.h"
#include "formats/deepspeed/verify.h"
#include "muonstore/file_system.h"

namespace muonstore::deepspeed {
namespace {

using Value = PythonValue;
constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

TEST(CraftedTest, TheUnchangedCheckpointsAreSound) {
  for (const int stage : {1, 2, 3}) {
    Crafted(stage).ExpectSound();
  }
}

TEST(CraftedTest, HierarchicalPartitioningIsRefusedByName) {
  for (const char* key : {"zero_hpz_partition_size", "mics_shard_size"}) {
    Crafted crafted(3);
    crafted.model()
        .Get("ds_config")
        .Get("zero_optimization")
        .Set(key, Value::Int(2));
    crafted.ExpectUnsupported({"hpZ or MiCS", crafted.model_name()});
  }
  Crafted crafted(3);
  Value& zero = crafted.model().Get("ds_config").Get("zero_optimization");
  zero.Set("zero_hpz_partition_size", Value::Int(1));
  zero.Set("mics_shard_size", Value::Int(-1));
  crafted.ExpectSound();
}

TEST(CraftedTest, OtherParallelismIsRefusedByName) {
  Crafted model_parallel(2);
  model_parallel.model().Set("mp_world_size", Value::Int(2));
  model_parallel.ExpectUnsupported({"tensor parallelism", "model_states.pt"});
  Crafted tensor(2);
  tensor.model()
      .Get("checkpoint_parallel_dimensions")
      .Set("tp_degree", Value::Int(2));
  tensor.ExpectUnsupported({"tensor parallelism", "model_states.pt"});
  Crafted pipeline(2);
  pipeline.model()
      .Get("checkpoint_parallel_dimensions")
      .Set("pp_degree", Value::Int(2));
  pipeline.ExpectUnsupported({"pipeline parallelism", "model_states.pt"});
}

TEST(CraftedTest, ExpertsAreRefusedByName) {
  Crafted layers(2);
  layers.model().Set("ds_autoep_layers", Value::Dict());
  layers.ExpectSound();
  layers.model().Get("ds_autoep_layers").Set("0", Value::Int(1));
  layers.ExpectUnsupported({"experts", layers.model_name()});
  Crafted folding(2);
  folding.optim(1).Set("folding", Value::Dict());
  folding.ExpectUnsupported({"expert folding", folding.optim_name(1)});
  Crafted groups(3);
  groups.zero(1).Set("ds_zero_partition_groups", Value::Ints({1}));
  groups.ExpectUnsupported({"partition groups", groups.optim_name(1)});
}

TEST(CraftedTest, StagesThatZeroDoesNotHave) {
  for (const int64_t stage : {int64_t{0}, int64_t{7}, int64_t{-1},
                              (int64_t{1} << 32) + 2, kLargest}) {
    Crafted crafted(2);
    crafted.zero(0).Set("zero_stage", Value::Int(stage));
    crafted.ExpectUnsupported(
        {"stage is not 1, 2 or 3", crafted.optim_name(0)});
  }
  Crafted contradiction(2);
  contradiction.zero(0).Set("zero_stage", Value::Int(3));
  contradiction.zero(1).Set("zero_stage", Value::Int(3));
  contradiction.ExpectDataLoss({"stage", contradiction.optim_name(0)});
  Crafted text(2);
  text.zero(0).Set("zero_stage", Value::Str("two"));
  text.ExpectError(ErrorCode::kUnsupported, {text.optim_name(0)});
}

TEST(CraftedTest, UnknownKindsPassThrough) {
  for (const int stage : {1, 2, 3}) {
    Crafted crafted(stage);
    for (const int rank : {0, 1}) {
      Value& state = crafted.state(rank, 1);
      state.Set("max_exp_avg_sq", state.Get("exp_avg_sq"));
      state.Set("drift", Value::Float(0.5));
      state.Set("note", Value::Str("text"));
    }
    crafted.ExpectSound();
    const auto checkpoint =
        DeepSpeedCheckpoint::Open(PosixFileSystem(), crafted.tag(), {});
    const auto tensor = FindTensor(*checkpoint, {"p2", "max_exp_avg_sq"});
    ASSERT_TRUE(tensor.has_value());
    const auto original = FindTensor(*checkpoint, {"p2", "exp_avg_sq"});
    EXPECT_EQ(ReadTensorF32(*checkpoint, *tensor, {0, 7}),
              ReadTensorF32(*checkpoint, *original, {0, 7}));
  }
}

TEST(CraftedTest, ConfigsThatSayNothing) {
  for (const int stage : {1, 2, 3}) {
    for (const Value& config : {Value(), Value::Str("ds.json"), Value::Int(1),
                                Value::List(), Value::Dict()}) {
      Crafted crafted(stage);
      for (const int rank : {0, 1}) {
        crafted.optim(rank).Set("ds_config", config);
        crafted.model(stage == 3 ? rank : 0).Set("ds_config", config);
      }
      crafted.ExpectSound();
    }
    Crafted absent(stage);
    for (const int rank : {0, 1}) {
      absent.optim(rank).Erase("ds_config");
    }
    absent.model().Erase("ds_config");
    absent.ExpectSound();
  }
}

TEST(CraftedTest, KeysThatMayBeAbsent) {
  Crafted crafted(2);
  for (const int rank : {0, 1}) {
    crafted.zero(rank).Erase("loss_scaler");
    crafted.zero(rank).Erase("param_slice_mappings");
    crafted.zero(rank).Erase("partition_count");
    crafted.optim(rank).Erase("ds_version");
  }
  for (const char* key :
       {"buffer_names", "shared_params", "ds_version", "dp_world_size",
        "mp_world_size", "checkpoint_parallel_dimensions"}) {
    crafted.model().Erase(key);
  }
  crafted.ExpectSound();
}

TEST(CraftedTest, KeysThatMustBeThere) {
  for (const char* key : {"base_optimizer_state", "group_paddings"}) {
    Crafted crafted(2);
    crafted.zero(1).Erase(key);
    crafted.ExpectDataLoss({key, crafted.optim_name(1)});
  }
  for (const char* key : {"state", "param_groups"}) {
    Crafted crafted(3);
    crafted.zero(0).Get("optimizer_state_dict").Erase(key);
    crafted.ExpectDataLoss({key, crafted.optim_name(0)});
  }
  Crafted shapes(2);
  shapes.model().Erase("param_shapes");
  shapes.ExpectDataLoss({"param_shapes", shapes.model_name()});
  Crafted masters(2);
  masters.zero(0).Erase("single_partition_of_fp32_groups");
  masters.ExpectUnsupported({"not ZeRO's", masters.optim_name(0)});
}

TEST(CraftedTest, LossScalersOfAnyForm) {
  for (const Value& scaler : {Value(), Value::Float(2), Value::Dict()}) {
    Crafted crafted(2);
    crafted.zero(0).Set("loss_scaler", scaler);
    crafted.zero(1).Set("loss_scaler", scaler);
    crafted.ExpectSound();
  }
  Value attributes = Value::Dict();
  attributes.Set("cur_scale", Value::Str("much"));
  Crafted crafted(2);
  crafted.zero(1).Set("loss_scaler",
                      Value::Object("deepspeed.runtime.fp16.loss_scaler",
                                    "LossScaler", attributes));
  crafted.ExpectDataLoss({crafted.optim_name(1)});
}

TEST(CraftedTest, SwapFileNamesStayInTheirFolder) {
  CheckpointSpec spec = CraftedSpec(3);
  spec.swapped_parity = 0;
  Crafted(spec).ExpectSound();
  for (const char* name : {"a/b", "../7_0", "..", ".hidden", "/etc/passwd"}) {
    Crafted master(spec);
    master.zero(1).Get("fp32_flat_groups").at(0).tensor().ds_id = name;
    master.ExpectDataLoss({"leaves its folder", master.optim_name(1)});
    Crafted state(spec);
    state.state(1, 0).Get("momentum_buffer").tensor().ds_id = name;
    state.ExpectDataLoss({"leaves its folder", state.optim_name(1)});
  }
  Crafted unknown(spec);
  unknown.state(1, 0).Get("momentum_buffer").tensor().ds_id = "other";
  unknown.ExpectDataLoss({"swap file is missing", "rank01/other.tensor.swp"});
}

TEST(CraftedTest, FrozenPieces) {
  Crafted missing(3);
  missing.model(1).Get("frozen_param_fragments").Erase("p3");
  missing.ExpectDataLoss(
      {"piece of a frozen parameter", "p3", missing.model_name(1)});
  for (const int rank : {0, 1}) {
    for (const int64_t size : {0, 4, 6, 9}) {
      Crafted crafted(3);
      crafted.model(rank).Get("frozen_param_fragments").Set("p3", BF16(size));
      crafted.ExpectDataLoss(
          {"piece of a frozen parameter", "p3", crafted.model_name(rank)});
    }
  }
}

TEST(CraftedTest, FrozenPiecesOfTwoDTypes) {
  Crafted crafted(3);
  crafted.model(1).Get("frozen_param_fragments").Set("p3", F32(5));
  crafted.ExpectDataLoss({"p3", crafted.model_name(1)});
}

TEST(CraftedTest, FrozenFragmentsOfNoneOnOneRank) {
  Crafted crafted(3);
  crafted.model(0).Set("frozen_param_fragments", Value());
  crafted.ExpectDataLoss({"p3", crafted.model_name(0)});
}

TEST(CraftedTest, RootsThatAreNoDicts) {
  for (const Value& root :
       {Value(), Value::Int(1), Value::List(), F32(3),
        Value::Object("torch.nn.modules", "Linear", Value::Dict())}) {
    Crafted optim(2);
    optim.optim(1) = root;
    optim.ExpectUnsupported({"no checkpoint", optim.optim_name(1)});
    Crafted model(2);
    model.model() = root;
    model.ExpectUnsupported({"no checkpoint", model.model_name()});
  }
  Crafted optim(2);
  optim.optim(1) = Value::Dict();
  optim.ExpectDataLoss({"no optim_states file", optim.optim_name(1)});
  Crafted model(2);
  model.model() = Value::Dict();
  model.ExpectDataLoss({"no model_states file", model.model_name()});
}

// BF16_Optimizer runs at stage 0 as well and cuts as in stage 1.
TEST(CraftedTest, TheConfigDoesNotDecideTheStageOfBf16Optimizer) {
  CheckpointSpec spec = CraftedSpec(1);
  spec.bf16_optimizer = true;
  Crafted crafted(spec);
  for (const int rank : {0, 1}) {
    crafted.optim(rank)
        .Get("ds_config")
        .Get("zero_optimization")
        .Set("stage", Value::Int(0));
  }
  crafted.ExpectSound();
}

TEST(CraftedTest, SwappedSubGroupsBeyondAllBounds) {
  CheckpointSpec spec = CraftedSpec(3);
  spec.swapped_parity = 0;
  Crafted crafted(spec);
  for (const int rank : {0, 1}) {
    crafted.model(rank)
        .Get("param_shapes")
        .at(0)
        .Set("p0", Value::Size({kLargest / 2}));
  }
  crafted.ExpectDataLoss({crafted.tag()});
}

// Every value of both files is replaced in turn by values of other types:
// whatever comes of it, it is an Error or a checkpoint.
void ReplaceEach(Value& value, const std::function<void()>& check) {
  for (const Value& other :
       {Value(), Value::Int(-kLargest), Value::Dict(), F32(2)}) {
    const Value original = value;
    value = other;
    check();
    value = original;
  }
  for (size_t i = 0; i < value.size(); ++i) {
    ReplaceEach(value.at(i), check);
  }
}

TEST(CraftedTest, AnyValueMayBeReplacedByAnyOther) {
  for (const int stage : {2, 3}) {
    Crafted crafted(stage);
    int num_errors = 0;
    int num_tries = 0;
    std::string name;
    crafted.Open();
    const auto check = [&] {
      ++num_tries;
      try {
        crafted.Rewrite(name);
        crafted.OpenWritten();
      } catch (const Error& error) {
        ++num_errors;
        EXPECT_FALSE(error.place().file.empty()) << error.what();
        EXPECT_TRUE(error.code() == ErrorCode::kDataLoss ||
                    error.code() == ErrorCode::kUnsupported)
            << error.what();
      }
      EXPECT_NO_THROW(VerifyTag(PosixFileSystem(), crafted.tag(), {}));
    };
    name = crafted.optim_name(1);
    ReplaceEach(crafted.optim(1), check);
    crafted.Rewrite(name);
    name = crafted.model_name();
    ReplaceEach(crafted.model(), check);
    EXPECT_GT(num_errors, num_tries / 3);
    EXPECT_LT(num_errors, num_tries);
  }
}

}  // namespace
}  // namespace muonstore::deepspeed
