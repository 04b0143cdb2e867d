// Which tensors are exported, in which files, and what is said of the rest.
#include "formats/safetensors/export_plan.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/memory_checkpoint.h"

#include <nlohmann/json.hpp>

namespace muonstore::safetensors {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsTrue;
using testutil::MemoryCheckpoint;
using testutil::UniqueValues;

// A model of two trained matrices, a frozen one and a buffer.
class ExportPlanTest : public testing::Test {
 protected:
  ExportPlanTest() {
    Add("w2", "master", DType::kF32, {4, 2});
    Add("w2", "momentum", DType::kBF16, {4, 2});
    Add("w1", "master", DType::kF32, {2, 2});
    Add("w1", "momentum", DType::kBF16, {2, 2});
    Add("w1", "weight", DType::kBF16, {2, 2});
    Add("w2", "weight", DType::kBF16, {4, 2});
    Add("frozen", "weight", DType::kBF16, {3});
    Add("mask", "buffer", DType::kF32, {5});
    source_.mutable_info().module_order = {"mask", "frozen", "w1", "w2",
                                           "head"};
    source_.mutable_info().aliases = {{"head", "w2"}};
    source_.mutable_info().groups.emplace_back();
  }

  void Add(const std::string& name, const std::string& kind, DType dtype,
           const std::vector<int64_t>& shape) {
    source_.Add(
        {.parameter = name, .kind = kind, .shape = shape, .dtype = dtype},
        UniqueValues(Shape(shape).num_elements()));
  }

  // "name kind dtype", shard by shard in file order.
  std::vector<std::string> Tensors(const ExportPlan& plan) const {
    std::vector<std::string> out;
    for (const Shard& shard : plan.shards) {
      for (const ExportedTensor& exported : shard.tensors) {
        const TensorKey& key = source_.tensors()[exported.tensor].key;
        EXPECT_EQ(exported.entry.name, key.parameter);
        out.push_back(key.parameter + " " + key.kind + " " +
                      std::string(DTypeName(exported.entry.dtype)));
      }
    }
    return out;
  }

  MemoryCheckpoint source_;
};

TEST_F(ExportPlanTest, WeightsAreAWholeModel) {
  const ExportPlan plan = PlanExport(source_, {});
  EXPECT_THAT(Tensors(plan),
              ElementsAre("mask buffer f32", "frozen weight bf16",
                          "w1 weight bf16", "w2 weight bf16"));
  ASSERT_EQ(plan.shards.size(), 1U);
  EXPECT_EQ(plan.shards[0].file_name, "model.safetensors");
  EXPECT_THAT(plan.notes, ElementsAre(HasSubstr("head is tied to w2")));
  EXPECT_THAT(plan.losses, Each(Field(&SinkLoss::is_chosen, IsTrue())));
  EXPECT_THAT(plan.losses, Contains(Field(&SinkLoss::kind, "master")));
  EXPECT_THAT(plan.losses, Contains(Field(&SinkLoss::kind, "carried")));
}

TEST_F(ExportPlanTest, MastersTakeFrozenWeightsAlong) {
  const ExportPlan plan = PlanExport(source_, {.state = "master"});
  EXPECT_THAT(Tensors(plan),
              ElementsAre("mask buffer f32", "w1 master f32", "w2 master f32",
                          "frozen weight bf16"));
  EXPECT_THAT(plan.notes, Contains(HasSubstr("1 parameters without master")));
}

TEST_F(ExportPlanTest, AMissingWeightIsItsMaster) {
  MemoryCheckpoint source;
  source.Add({.parameter = "w", .kind = "master", .shape = {2}}, {1, 2});
  const ExportPlan plan = PlanExport(source, {.dtype = DType::kBF16});
  ASSERT_EQ(plan.shards[0].tensors.size(), 1U);
  EXPECT_EQ(plan.shards[0].tensors[0].entry.dtype, DType::kBF16);
}

TEST_F(ExportPlanTest, MomentumIsAlone) {
  const ExportPlan plan = PlanExport(source_, {.state = "momentum"});
  EXPECT_THAT(Tensors(plan),
              ElementsAre("w1 momentum bf16", "w2 momentum bf16"));
}

TEST_F(ExportPlanTest, ADTypeIsForParametersAndRoundingIsSaid) {
  const ExportPlan plan =
      PlanExport(source_, {.state = "master", .dtype = DType::kF16});
  EXPECT_THAT(Tensors(plan), ElementsAre("mask buffer f32", "frozen weight f16",
                                         "w1 master f16", "w2 master f16"));
  EXPECT_THAT(plan.losses,
              Contains(Field(&SinkLoss::message,
                             HasSubstr("3 tensors: rounded to f16"))));
  const ExportPlan wide =
      PlanExport(source_, {.state = "momentum", .dtype = DType::kF32});
  EXPECT_THAT(wide.losses,
              testing::Not(Contains(Field(&SinkLoss::kind, "precision"))));
}

TEST_F(ExportPlanTest, AnUnknownStateListsWhatThereIs) {
  const auto error = ErrorOf([&] { PlanExport(source_, {.state = "v"}); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error->message(), HasSubstr("buffer, master, momentum, weight"));
}

TEST_F(ExportPlanTest, ShardsFillInTheModulesOrder) {
  // 20 + 6 + 8 + 16 bytes: a shard of 30 holds the first two, or the last two.
  const ExportPlan plan = PlanExport(source_, {.max_shard_bytes = 30});
  ASSERT_EQ(plan.shards.size(), 2U);
  EXPECT_EQ(plan.shards[1].file_name, "model-00002-of-00002.safetensors");
  EXPECT_EQ(plan.shards[0].tensors.size(), 2U);
  EXPECT_EQ(plan.shards[1].tensors[0].entry.name, "w1");
  const auto index = nlohmann::json::parse(IndexText(plan));
  EXPECT_EQ(index["metadata"]["total_size"], 50);
  EXPECT_EQ(index["weight_map"]["mask"], "model-00001-of-00002.safetensors");
  EXPECT_EQ(index["weight_map"]["w2"], "model-00002-of-00002.safetensors");
}

TEST_F(ExportPlanTest, ATensorLargerThanAShardHasItsOwn) {
  const ExportPlan plan = PlanExport(source_, {.max_shard_bytes = 15});
  ASSERT_EQ(plan.shards.size(), 3U);
  EXPECT_EQ(plan.shards[0].tensors[0].entry.name, "mask");
  EXPECT_EQ(plan.shards[1].tensors[0].entry.name, "w2");
  EXPECT_EQ(plan.shards[2].tensors.size(), 2U);  // Left open the longest.
}

TEST_F(ExportPlanTest, ANameThatIsNoUtf8IsNamed) {
  Add("bad\xFF", "weight", DType::kF32, {1});
  const auto error = ErrorOf([&] { PlanExport(source_, {}); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kUnsupported);
  EXPECT_EQ(error->place().tensor, "bad\\xff");
}

}  // namespace
}  // namespace muonstore::safetensors
