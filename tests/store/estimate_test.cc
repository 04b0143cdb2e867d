#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "muonstore/store.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"

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
