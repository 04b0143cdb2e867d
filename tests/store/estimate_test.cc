#include <map>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "muonstore/store.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/fault_tier.h"

namespace muonstore {
namespace {

using ::testing::HasSubstr;
using testutil::SmallModel;

std::map<std::string, uint64_t> ByParameter(const StoreEstimate& estimate) {
  std::map<std::string, uint64_t> bytes;
  for (const auto& parameter : estimate.parameters) {
    bytes[parameter.name] = parameter.bytes;
  }
  return bytes;
}

TEST(EstimateTest, CountsEveryKindOfEveryParameter) {
  const auto model = SmallModel();
  const auto partitioning =
      Partitioning::Build(model, {.stage = 2, .num_ranks = 1});
  const auto bytes =
      ByParameter(StateStore::Estimate(model, partitioning, 0, {}));
  // Muon: master, momentum, gradient in f32 and a bf16 weight.
  EXPECT_EQ(bytes.at("mlp.up.weight"), 54U * 14);
  // Adam: master, two moments, gradient and an f32 weight.
  EXPECT_EQ(bytes.at("norm.weight"), 13U * 20);
  EXPECT_EQ(bytes.at("frozen.weight"), 0U);
}

TEST(EstimateTest, RanksShareWhatOneHasAlone) {
  const auto model = SmallModel();
  const auto alone = ByParameter(StateStore::Estimate(
      model, Partitioning::Build(model, {.stage = 3, .num_ranks = 1}), 0, {}));
  const auto cut = Partitioning::Build(model, {.stage = 3, .num_ranks = 4});
  std::map<std::string, uint64_t> sum;
  for (int32_t rank = 0; rank < 4; ++rank) {
    const auto estimate = StateStore::Estimate(model, cut, rank, {});
    EXPECT_EQ(estimate.rank, rank);
    for (const auto& [name, bytes] : ByParameter(estimate)) {
      sum[name] += bytes;
    }
  }
  EXPECT_EQ(sum, alone);
}

TEST(EstimateTest, IsWhatAStoreTakes) {
  const auto model = SmallModel();
  const auto partitioning =
      Partitioning::Build(model, {.stage = 2, .num_ranks = 1});
  const StoreEstimate estimate =
      StateStore::Estimate(model, partitioning, 0, {});
  StateStore store(model, partitioning, {.max_bytes = estimate.total_bytes()});
  std::map<std::string, uint64_t> taken;
  for (const PinReport& report : store.pin_reports()) {
    EXPECT_GT(report.total_bytes, 0U);
    taken["all"] += report.total_bytes;
  }
  EXPECT_EQ(taken["all"], estimate.total_bytes());
}

TEST(EstimateTest, ARankThatThereIsNotIsRefused) {
  const auto model = SmallModel();
  const auto partitioning =
      Partitioning::Build(model, {.stage = 2, .num_ranks = 2});
  for (const int32_t rank : {-1, 2}) {
    const auto estimate = [&] {
      static_cast<void>(StateStore::Estimate(model, partitioning, rank, {}));
    };
    EXPECT_EQ(CodeOf(estimate), ErrorCode::kInvalidArgument);
    EXPECT_THAT(TextOf(estimate), HasSubstr("0 to 1"));
  }
}

TEST(EstimateTest, SaysWhichSegmentsAreResident) {
  const auto model = SmallModel();
  // One flat group of Muon with 369 elements, one of Adam with 79.
  const auto partitioning =
      Partitioning::Build(model, {.stage = 2, .num_ranks = 1});
  StoreOptions options{
      .tiers = testutil::AllIn(std::make_shared<testutil::FaultTier>(), 400)};
  options.max_snapshot_bytes = 400;
  std::string text;
  for (const auto& kind :
       StateStore::Estimate(model, partitioning, 0, options).kinds) {
    text += kind.kind + (kind.resident ? " resident" : " in " + kind.tier);
    for (const int32_t group : kind.flat_groups) {
      text += " " + std::to_string(group);
    }
    text += ": " + std::to_string(kind.bytes / 4096) + "+" +
            std::to_string(kind.snapshot_bytes / 4096) + "\n";
  }
  // The third slot in files takes no memory; of the resident ones the cap
  // leaves room for the first that a step writes.
  EXPECT_EQ(text,
            "master in fault 0: 2+1\n"
            "master resident 1: 1+1\n"
            "momentum in fault 0: 2+1\n"
            "exp_avg resident 1: 1+0\n"
            "exp_avg_sq resident 1: 1+0\n"
            "gradient in fault 0: 1+0\n"
            "gradient resident 1: 1+0\n"
            "weight in fault 0: 2+0\n"
            "weight resident 1: 1+0\n");
}

TEST(EstimateTest, WhatCannotFitIsRefusedWithBothNumbers) {
  const auto model = SmallModel();
  const auto partitioning =
      Partitioning::Build(model, {.stage = 2, .num_ranks = 1});
  const uint64_t total =
      StateStore::Estimate(model, partitioning, 0, {}).total_bytes();
  const auto build = [&] {
    StateStore store(model, partitioning, {.max_bytes = total - 1});
  };
  EXPECT_EQ(CodeOf(build), ErrorCode::kResourceExhausted);
  EXPECT_THAT(TextOf(build), HasSubstr(std::to_string(total)));
}

TEST(EstimateTest, WhatNoMachineHasIsRefusedBeforeItIsAllocated) {
  std::vector<ParameterSpec> model = {
      {.name = "huge", .shape = Shape({int64_t{1} << 24, int64_t{1} << 20})}};
  const auto build = [&] {
    StateStore store(
        model, Partitioning::Build(model, {.stage = 2, .num_ranks = 1}), {});
  };
  EXPECT_EQ(CodeOf(build), ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace muonstore
