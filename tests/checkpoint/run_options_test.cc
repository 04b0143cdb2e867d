#include "muonstore/run_options.h"

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/open.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/memory_checkpoint.h"

namespace muonstore {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::unique_ptr<Checkpoint> OpenCase(const std::string& name) {
  return OpenCheckpoint(
      PosixFileSystem(),
      (testutil::FindDeepSpeedCase(name).folder / "ckpt/step5").string(),
      {.allow_loss = true});
}

TEST(RunOptions, AreThoseOfTheRun) {
  const RunOptions options = RunOptionsOf(*OpenCase("s2-ws2-bf16-none-base"));
  ASSERT_EQ(options.executor.groups.size(), 2U);
  const GroupHyperParameters& muon = options.executor.groups[0];
  EXPECT_EQ(muon.lr, 0.02);
  EXPECT_EQ(muon.weight_decay, 0.01);
  EXPECT_EQ(muon.momentum, 0.95);
  EXPECT_TRUE(muon.nesterov);
  EXPECT_EQ(muon.scale, MuonScaleMode::kSpectral);
  const GroupHyperParameters& adam = options.executor.groups[1];
  EXPECT_EQ(adam.lr, 0.003);
  EXPECT_EQ(adam.beta1, 0.9);
  EXPECT_EQ(adam.beta2, 0.95);
  EXPECT_EQ(adam.eps, 1e-8);
  EXPECT_EQ(adam.adam_order, AdamOrder::kTorch);
  EXPECT_EQ(options.executor.max_norm, 1.0);
  EXPECT_EQ(options.executor.newton_schulz.normalization,
            NewtonSchulzNormalization::kCompat);
  EXPECT_THAT(options.missing, IsEmpty());
  EXPECT_THAT(options.notes, Not(IsEmpty()));
}

TEST(RunOptions, CpuAdamHasItsOwnOrder) {
  const RunOptions options = RunOptionsOf(*OpenCase("s3-ws4-bf16-cpu-base"));
  EXPECT_EQ(options.executor.groups.at(1).adam_order, AdamOrder::kDeepSpeed);
}

TEST(RunOptions, GroupsKeepTheirOwn) {
  const RunOptions options =
      RunOptionsOf(*OpenCase("s1-ws2-bf16-none-groups+sched"));
  ASSERT_EQ(options.executor.groups.size(), 3U);
  EXPECT_EQ(options.executor.groups[1].weight_decay, 0.01);
  EXPECT_EQ(options.executor.groups[2].weight_decay, 0);
  EXPECT_DOUBLE_EQ(options.executor.groups[2].lr, 0.04 / 3);
}

TEST(RunOptions, AnElasticCheckpointHasThemInItsConfig) {
  const RunOptions options =
      RunOptionsOf(*OpenCase("s1-ws2-bf16-none-elastic"));
  ASSERT_EQ(options.executor.groups.size(), 2U);
  EXPECT_EQ(options.executor.groups[0].lr, 0.02);
  EXPECT_EQ(options.executor.groups[0].momentum, 0.95);
  EXPECT_EQ(options.executor.groups[1].lr, 0.003);
  EXPECT_EQ(options.executor.groups[1].beta2, 0.95);
  EXPECT_THAT(options.missing, IsEmpty());
}

TEST(RunOptions, TorchAdamWIsDecoupled) {
  const RunOptions options =
      RunOptionsOf(*OpenCase("s2-ws2-bf16-none-adamonly"));
  ASSERT_EQ(options.executor.groups.size(), 1U);
  EXPECT_TRUE(options.executor.groups[0].decoupled_decay);
  EXPECT_EQ(options.executor.groups[0].adam_order, AdamOrder::kTorch);
}

CheckpointInfo OneAdamGroup(ScalarMap hyper_parameters) {
  CheckpointInfo info;
  info.groups = {{.name = "a",
                  .optimizer = Optimizer::kAdam,
                  .hyper_parameters = std::move(hyper_parameters)}};
  return info;
}

TEST(RunOptions, WhatIsMissingIsNamed) {
  testutil::MemoryCheckpoint checkpoint;
  checkpoint.mutable_info() = OneAdamGroup({{"lr", 0.5}});
  const RunOptions options = RunOptionsOf(checkpoint);
  EXPECT_EQ(options.executor.groups.at(0).lr, 0.5);
  EXPECT_THAT(options.missing,
              ElementsAre("group 0 (a): weight_decay", "group 0 (a): betas",
                          "group 0 (a): eps", "gradient_clipping"));
}

TEST(RunOptions, WhatAnExecutorCannotDoIsRefused) {
  for (const auto& [name, value] : ScalarMap{
           {"amsgrad", true}, {"maximize", true}, {"bias_correction", false}}) {
    testutil::MemoryCheckpoint checkpoint;
    checkpoint.mutable_info() = OneAdamGroup({{name, value}});
    const auto error = ErrorOf([&] { RunOptionsOf(checkpoint); });
    ASSERT_TRUE(error.has_value()) << name;
    EXPECT_EQ(error->code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error->place().found, HasSubstr(name));
  }
}

TEST(RunOptions, AValueOfAWrongTypeIsDamage) {
  for (const auto& [name, value] :
       ScalarMap{{"lr", std::string("fast")},
                 {"eps", std::monostate()},
                 {"betas", std::vector<double>{0.9}}}) {
    testutil::MemoryCheckpoint checkpoint;
    checkpoint.mutable_info() = OneAdamGroup({{name, value}});
    EXPECT_EQ(CodeOf([&] { RunOptionsOf(checkpoint); }), ErrorCode::kDataLoss)
        << name;
  }
}

TEST(RunOptions, TorchMuonSaysHowItScales) {
  testutil::MemoryCheckpoint checkpoint;
  checkpoint.mutable_info().groups = {
      {.name = "m",
       .optimizer = Optimizer::kMuon,
       .hyper_parameters = {{"nesterov", false},
                            {"adjust_lr_fn", std::string("match_rms_adamw")}}}};
  const RunOptions options = RunOptionsOf(checkpoint);
  EXPECT_FALSE(options.executor.groups.at(0).nesterov);
  EXPECT_EQ(options.executor.groups.at(0).scale, MuonScaleMode::kMatchRms);
  EXPECT_THAT(options.missing, Contains("group 0 (m): momentum"));
}

}  // namespace
}  // namespace muonstore
