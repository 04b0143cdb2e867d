// What summary tells of a DeepSpeed checkpoint.

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/deepspeed/checkpoint.h"
#include "muonstore/file_system.h"
#include "tests/testutil/fixtures.h"

namespace muonstore::deepspeed {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Pair;

CheckpointInfo InfoOf(const std::string& name,
                      const ReadOptions& options = {}) {
  const auto path = testutil::FindDeepSpeedCase(name).folder / "ckpt" / "step5";
  return DeepSpeedCheckpoint::Open(PosixFileSystem(), path.string(), options)
      ->info();
}

struct Want {
  const char* name;
  int32_t stage;
  int32_t num_ranks;
  const char* precision;
  const char* offload;
  const char* order;
  const char* optimizer_class;
  const char* stored_form;
};

TEST(DescribeTest, FactsOfTheRun) {
  const Want wants[] = {
      {"s1-ws1-bf16-none-base", 1, 1, "bf16", "none", "sorted by shape",
       "DeepSpeedZeroOptimizer", "whole matrices"},
      {"s1-ws2-fp32-cpu-base", 1, 2, "fp32", "cpu", "sorted by shape",
       "DeepSpeedZeroOptimizer", "flat partition"},
      {"s2-ws11-bf16-none-ws11", 2, 11, "bf16", "none", "sorted by shape",
       "DeepSpeedZeroOptimizer", "whole matrices"},
      {"s3-ws2-bf16-none-zinit", 3, 2, "bf16", "none", "module",
       "DeepSpeedZeroOptimizer_Stage3", "sub-group partition"},
      {"s3-ws2-bf16-nvme-swapall", 3, 2, "bf16", "nvme", "sorted by shape",
       "DeepSpeedZeroOptimizer_Stage3", "sub-group partition"},
  };
  for (const Want& want : wants) {
    const CheckpointInfo info = InfoOf(want.name);
    EXPECT_EQ(info.format, "deepspeed");
    EXPECT_EQ(info.producer, "DeepSpeed 0.19.8") << want.name;
    EXPECT_EQ(info.tag, "step5");
    EXPECT_EQ(info.step, 5);
    EXPECT_EQ(info.stage, want.stage) << want.name;
    EXPECT_EQ(info.num_ranks, want.num_ranks) << want.name;
    EXPECT_EQ(info.precision, want.precision) << want.name;
    EXPECT_EQ(info.offload, want.offload) << want.name;
    EXPECT_EQ(info.order, want.order) << want.name;
    EXPECT_EQ(info.optimizer_class, want.optimizer_class) << want.name;
    EXPECT_EQ(info.momentum->stored_form, want.stored_form) << want.name;
  }
}

TEST(DescribeTest, GroupsKeepTheirOwnHyperParameters) {
  const CheckpointInfo info = InfoOf("s1-ws2-bf16-none-groups+sched");
  ASSERT_EQ(info.groups.size(), 3U);
  EXPECT_EQ(info.groups[0].optimizer, Optimizer::kMuon);
  EXPECT_EQ(info.groups[1].optimizer, Optimizer::kAdam);
  EXPECT_NE(info.groups[0].name, info.groups[2].name);
  for (const ParamGroup& group : info.groups) {
    EXPECT_GT(group.num_parameters, 0) << group.name;
    EXPECT_GT(group.num_elements, 0) << group.name;
  }
  const CheckpointInfo base = InfoOf("s2-ws2-bf16-none-base");
  EXPECT_THAT(base.groups[0].hyper_parameters,
              Contains(Pair("lr", Scalar(0.02))));
  EXPECT_THAT(base.groups[1].hyper_parameters,
              Contains(Pair("betas", Scalar(std::vector<double>{0.9, 0.95}))));
  EXPECT_EQ(base.groups[0].num_elements, 10075);
}

TEST(DescribeTest, MomentumUnitsAreNotTakenFromTheLossScaleOnTrust) {
  const auto base = InfoOf("s2-ws2-bf16-none-base").momentum;
  EXPECT_EQ(base->unit, MomentumUnit::kTrue);
  const auto offloaded = InfoOf("s2-ws2-fp16-cpu-scalemid").momentum;
  EXPECT_EQ(offloaded->unit, MomentumUnit::kTrue);
  // The file says 512, the momentum is in units of 256.
  const auto doubled = InfoOf("s2-ws2-fp16-none-scaledoubled").momentum;
  EXPECT_EQ(doubled->unit, MomentumUnit::kLossScaled);
  EXPECT_EQ(doubled->scale_in_file, 512.0);
  EXPECT_FALSE(doubled->unit_scale.has_value());
}

TEST(DescribeTest, TiedBuffersAndClientState) {
  EXPECT_THAT(InfoOf("s3-ws2-bf16-none-tied").aliases,
              ElementsAre(Pair("lm_head.weight", "embed_tokens.weight")));
  std::vector<std::string> carried;
  for (const CarriedValue& value :
       InfoOf("s2-ws2-bf16-none-clientstate").carried) {
    carried.push_back(value.path);
  }
  EXPECT_THAT(carried, Contains("lr_scheduler"));
  EXPECT_THAT(carried, Contains("client_state.fixture"));
}

TEST(DescribeTest, TheModulesOwnOrder) {
  const std::vector<std::string> order =
      InfoOf("s3-ws2-bf16-none-tied").module_order;
  ASSERT_GT(order.size(), 4U);
  EXPECT_EQ(order.front(), "embed_tokens.weight");
  EXPECT_EQ(order.back(), "lm_head.weight");  // Tied, yet in its place.
  EXPECT_EQ(order[3], "blocks.0.attn.qkv.weight");
  EXPECT_EQ(InfoOf("s2-ws2-bf16-none-tied").module_order, order);
}

TEST(DescribeTest, RunsOfOneOptimizer) {
  const CheckpointInfo adam = InfoOf("s2-ws2-bf16-none-adamonly");
  EXPECT_FALSE(adam.momentum.has_value());
  ASSERT_EQ(adam.groups.size(), 1U);
  EXPECT_EQ(adam.groups[0].optimizer, Optimizer::kAdam);
  EXPECT_EQ(adam.groups[0].step, 5);  // A float tensor in the file.
  const CheckpointInfo muon = InfoOf("s2-ws2-bf16-none-muononly");
  ASSERT_EQ(muon.groups.size(), 1U);
  EXPECT_EQ(muon.groups[0].optimizer, Optimizer::kMuon);
  EXPECT_FALSE(muon.groups[0].step.has_value());
}

TEST(DescribeTest, HeadersOfRankZeroTellTheSame) {
  for (const testutil::DeepSpeedTag& tag : testutil::DeepSpeedTags()) {
    const auto open = [&](bool rank_zero_only) {
      return DeepSpeedCheckpoint::Open(
          PosixFileSystem(), tag.path().string(),
          {.allow_loss = true, .rank_zero_only = rank_zero_only});
    };
    const auto full = open(false);
    const auto headers = open(true);
    ASSERT_EQ(full->tensors().size(), headers->tensors().size());
    for (size_t t = 0; t < full->tensors().size(); ++t) {
      EXPECT_EQ(full->tensors()[t].key, headers->tensors()[t].key);
      EXPECT_EQ(full->tensors()[t].dtype, headers->tensors()[t].dtype);
      EXPECT_EQ(full->tensors()[t].stored_bytes,
                headers->tensors()[t].stored_bytes)
          << tag.ToString() << " " << full->tensors()[t].key.ToString();
    }
    EXPECT_EQ(full->info().order, headers->info().order);
    EXPECT_THROW(headers->fragments(0), Error);
  }
}

TEST(DescribeTest, ThreeStoredDtypesAndTheRanksOfATensor) {
  const auto path =
      testutil::FindDeepSpeedCase("s2-ws2-bf16-none-base").folder / "ckpt" /
      "step5";
  const auto checkpoint =
      DeepSpeedCheckpoint::Open(PosixFileSystem(), path.string(), {});
  const size_t straddler =
      FindTensor(*checkpoint, {"blocks.1.fc1.weight", StateKind(kMomentum)})
          .value();
  EXPECT_EQ(checkpoint->tensors()[straddler].dtype, DType::kBF16);
  EXPECT_THAT(RanksOf(*checkpoint, straddler), ElementsAre(0, 1));
  // Both ranks store the whole matrix.
  EXPECT_EQ(checkpoint->tensors()[straddler].stored_bytes, 2U * 2 * 56 * 24);
}

}  // namespace
}  // namespace muonstore::deepspeed
