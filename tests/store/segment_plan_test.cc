#include "src/store/segment_plan.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/fault_tier.h"

namespace muonstore {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using testutil::FaultTier;
using testutil::SmallModel;

// Flat groups of at most 60 elements a rank: several of Muon, then of Adam.
Partitioning CutInTwo(const std::vector<ParameterSpec>& model) {
  return Partitioning::Build(
      model, {.stage = 3, .num_ranks = 1, .sub_group_size = 60});
}

std::vector<ArenaPlan> Plan(const TierPolicy& tiers) {
  const auto model = SmallModel();
  return PlanArenas(model, CutInTwo(model), WithDefaultTiers(tiers, 1));
}

std::vector<std::pair<std::string, std::vector<int32_t>>> GroupsOf(
    const std::vector<ArenaPlan>& plans) {
  std::vector<std::pair<std::string, std::vector<int32_t>>> groups;
  groups.reserve(plans.size());
  for (const ArenaPlan& plan : plans) {
    groups.emplace_back(plan.arena.name, plan.flat_groups);
  }
  return groups;
}

// Elements of the flat groups of CutInTwo: 192, 117, 60 of Muon; 66, 13 of
// Adam.
TEST(SegmentPlanTest, OneArenaAKindInHostTiers) {
  const auto plans = Plan({});
  EXPECT_THAT(GroupsOf(plans),
              ElementsAre(Pair("master", ElementsAre(0, 1, 2, 3, 4)),
                          Pair("momentum", ElementsAre(0, 1, 2)),
                          Pair("exp_avg", ElementsAre(3, 4)),
                          Pair("exp_avg_sq", ElementsAre(3, 4)),
                          Pair("gradient", ElementsAre(0, 1, 2, 3, 4)),
                          Pair("weight", ElementsAre(0, 1, 2, 3, 4))));
  EXPECT_THAT(plans[1].arena.block_bytes,
              ElementsAre(192 * 4, 117 * 4, 60 * 4));
  // bf16 of Muon, f32 of Adam.
  EXPECT_THAT(plans[5].arena.block_bytes,
              ElementsAre(192 * 2, 117 * 2, 60 * 2, 66 * 4, 13 * 4));
  for (const ArenaPlan& plan : plans) {
    EXPECT_EQ(plan.arena.num_slots, 1);
    EXPECT_FALSE(plan.resident);
  }
}

TEST(SegmentPlanTest, SmallSegmentsOfAKindStayResident) {
  const auto tier = std::make_shared<FaultTier>();
  TierPolicy tiers;
  tiers.kinds["momentum"] = {.tier = tier,
                             .resident_below_bytes = uint64_t{117} * 4};
  tiers.kinds["gradient"] = {.tier = tier, .resident_below_bytes = 0};
  const auto plans = Plan(tiers);
  EXPECT_THAT(GroupsOf(plans),
              ElementsAre(Pair("master", ElementsAre(0, 1, 2, 3, 4)),
                          Pair("momentum", ElementsAre(0, 1)),
                          Pair("momentum (resident)", ElementsAre(2)),
                          Pair("exp_avg", ElementsAre(3, 4)),
                          Pair("exp_avg_sq", ElementsAre(3, 4)),
                          Pair("gradient", ElementsAre(0, 1, 2, 3, 4)),
                          Pair("weight", ElementsAre(0, 1, 2, 3, 4))));
  EXPECT_EQ(plans[1].tier, tier);
  EXPECT_EQ(plans[1].arena.num_slots, 2);
  EXPECT_EQ(plans[1].arena.pinning, Pinning::kOff);
  EXPECT_TRUE(plans[2].tier->addressable());
  EXPECT_TRUE(plans[2].resident);
  EXPECT_EQ(plans[2].arena.num_slots, 1);
  // Gradients have no previous generation.
  EXPECT_EQ(plans[5].arena.num_slots, 1);
}

TEST(SegmentPlanTest, ByDefaultAllOfASmallModelIsResident) {
  TierPolicy tiers;
  tiers.rest.tier = std::make_shared<FaultTier>();
  for (const ArenaPlan& plan : Plan(tiers)) EXPECT_TRUE(plan.resident);
}

TEST(SegmentPlanTest, WhatIsResidentNeedsMemory) {
  TierPolicy tiers;
  tiers.resident = std::make_shared<FaultTier>();
  EXPECT_EQ(CodeOf([&] { WithDefaultTiers(tiers, 1); }),
            ErrorCode::kInvalidArgument);
}

TEST(SegmentPlanTest, KindsHaveOneNameEach) {
  TierPolicy tiers;
  tiers.kinds["momentum_buffer"].tier = std::make_shared<FaultTier>();
  EXPECT_EQ(WithDefaultTiers(tiers, 1).of("momentum").tier,
            tiers.of("momentum_buffer").tier);
  tiers.kinds["momentum"] = {};
  EXPECT_EQ(CodeOf([&] { WithDefaultTiers(tiers, 1); }),
            ErrorCode::kInvalidArgument);
  TierPolicy unknown;
  unknown.kinds["max_exp_avg_sq"] = {};
  EXPECT_THAT(TextOf([&] { WithDefaultTiers(unknown, 1); }),
              ::testing::HasSubstr("max_exp_avg_sq"));
}

TEST(SegmentPlanTest, StepsWriteMomentaFirst) {
  const auto model = SmallModel();
  std::string text;
  for (const SegmentId& id : StepOrder(model, CutInTwo(model))) {
    text += std::string(id.kind) + std::to_string(id.flat_group) + " ";
  }
  EXPECT_EQ(text,
            "momentum0 momentum1 momentum2 "
            "master3 exp_avg3 exp_avg_sq3 weight3 "
            "master4 exp_avg4 exp_avg_sq4 weight4 "
            "master0 weight0 master1 weight1 master2 weight2 ");
}

std::vector<std::pair<std::string, std::vector<int32_t>>> Spares(
    const TierPolicy& tiers, uint64_t max_bytes) {
  const auto model = SmallModel();
  return GroupsOf(
      PlanSpares(Plan(tiers), StepOrder(model, CutInTwo(model)), max_bytes));
}

TEST(SegmentPlanTest, SparesAreForWhatACheckpointHolds) {
  EXPECT_THAT(Spares({}, 0),
              ElementsAre(Pair("master (spare)", ElementsAre(3, 4, 0, 1, 2)),
                          Pair("momentum (spare)", ElementsAre(0, 1, 2)),
                          Pair("exp_avg (spare)", ElementsAre(3, 4)),
                          Pair("exp_avg_sq (spare)", ElementsAre(3, 4))));
}

TEST(SegmentPlanTest, ACapTakesThoseThatAStepWritesFirst) {
  // A momentum, a second one that does not fit, a third one that does.
  EXPECT_THAT(Spares({}, uint64_t{192 + 60} * 4),
              ElementsAre(Pair("momentum (spare)", ElementsAre(0, 2))));
  EXPECT_THAT(Spares({}, 1), IsEmpty());
}

TEST(SegmentPlanTest, TheCapIsOfMemory) {
  TierPolicy tiers;
  tiers.kinds["momentum"] = {.tier = std::make_shared<FaultTier>(),
                             .resident_below_bytes = uint64_t{117} * 4};
  EXPECT_THAT(Spares(tiers, uint64_t{60} * 4),
              ElementsAre(Pair("momentum (spare)", ElementsAre(0, 1)),
                          Pair("momentum (resident) (spare)", ElementsAre(2))));
}

}  // namespace
}  // namespace muonstore
