#include "src/inspect/state_diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testutil/memory_checkpoint.h"

namespace muonstore {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testutil::MemoryCheckpoint;

// "what: a | b", with "(note)" where it is no difference.
std::vector<std::string> Render(const std::vector<ValueDiff>& values) {
  std::vector<std::string> out;
  for (const ValueDiff& value : values) {
    out.push_back(value.what + ": " + value.a + " | " + value.b +
                  (value.is_difference ? "" : " (note)"));
  }
  return out;
}

ParamGroup Group(const std::string& name, ScalarMap hyper_parameters = {}) {
  ParamGroup group;
  group.name = name;
  group.optimizer = Optimizer::kMuon;
  group.hyper_parameters = std::move(hyper_parameters);
  return group;
}

// A checkpoint whose group i holds the parameters members[i].
void Fill(MemoryCheckpoint& checkpoint, std::vector<ParamGroup> groups,
          const std::vector<std::vector<std::string>>& members) {
  checkpoint.mutable_info().groups = std::move(groups);
  for (size_t i = 0; i < members.size(); ++i) {
    for (const std::string& name : members[i]) {
      checkpoint.Add(
          {.parameter = name, .shape = {1}, .group = static_cast<int32_t>(i)},
          std::vector<float>{1});
    }
  }
}

TEST(ScalarsEqual, NumbersByValueOtherwiseByType) {
  EXPECT_TRUE(ScalarsEqual(Scalar(int64_t{1}), Scalar(1.0)));
  EXPECT_FALSE(ScalarsEqual(Scalar(int64_t{1}), Scalar(1.5)));
  EXPECT_FALSE(ScalarsEqual(Scalar(true), Scalar(int64_t{1})));
  EXPECT_TRUE(ScalarsEqual(Scalar(), Scalar()));
  EXPECT_FALSE(ScalarsEqual(Scalar(), Scalar(0.0)));
  EXPECT_TRUE(ScalarsEqual(Scalar(std::vector<double>{0.9, 0.95}),
                           Scalar(std::vector<double>{0.9, 0.95})));
  EXPECT_FALSE(
      ScalarsEqual(Scalar(std::string("a")), Scalar(std::string("b"))));
}

TEST(DiffGroups, EqualWhateverTheirOrder) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  Fill(a, {Group("muon", {{"lr", 0.1}}), Group("adam", {{"lr", 0.2}})},
       {{"w", "v"}, {"bias"}});
  Fill(b, {Group("adam", {{"lr", 0.2}}), Group("muon", {{"lr", 0.1}})},
       {{"bias"}, {"v", "w"}});
  EXPECT_THAT(DiffGroups(a, b), IsEmpty());
}

TEST(DiffGroups, ValuesOfEachGroup) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  Fill(a, {Group("muon", {{"lr", 0.1}, {"wd", int64_t{0}}, {"only_a", true}})},
       {{"w"}});
  Fill(b, {Group("muon", {{"wd", 0.0}, {"lr", 0.3}, {"only_b", 5.0}})},
       {{"w"}});
  a.mutable_info().groups[0].step = 5;
  b.mutable_info().groups[0].step = 8;
  b.mutable_info().groups[0].optimizer = Optimizer::kAdam;
  EXPECT_THAT(
      Render(DiffGroups(a, b)),
      ElementsAre("group muon: optimizer: muon | adam",
                  "group muon: step: 5 | 8", "group muon: lr: 0.1 | 0.3",
                  "group muon: only_a: true | (none) (note)",
                  "group muon: only_b: (none) | 5 (note)"));
}

TEST(DiffGroups, MatchedByMembersBeforeNames) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  Fill(a, {Group("group 0", {{"lr", 1.0}}), Group("group 1", {{"lr", 2.0}})},
       {{"w"}, {"bias"}});
  Fill(b, {Group("group 1", {{"lr", 1.0}}), Group("group 0", {{"lr", 2.0}})},
       {{"w"}, {"bias"}});
  EXPECT_THAT(Render(DiffGroups(a, b)),
              ElementsAre("group group 0: name: group 0 | group 1 (note)",
                          "group group 1: name: group 1 | group 0 (note)"));
}

TEST(DiffGroups, MembershipThatMovedIsADifference) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  Fill(a, {Group("muon"), Group("adam")}, {{"w", "embed"}, {"bias"}});
  Fill(b, {Group("muon"), Group("adam")}, {{"w"}, {"bias", "embed"}});
  EXPECT_THAT(
      Render(DiffGroups(a, b)),
      ElementsAre(
          "group muon: parameters that the other lacks: embed | (none)",
          "group adam: parameters that the other lacks: (none) | embed"));
}

TEST(DiffGroups, GroupsWithoutPartner) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  Fill(a, {Group("muon")}, {{"w"}});
  Fill(b, {Group("adam")}, {{"bias"}});
  EXPECT_THAT(Render(DiffGroups(a, b)),
              ElementsAre("group muon: present | (none)",
                          "group adam: (none) | present"));
}

TEST(DiffGroups, TiedNamesAreOneParameter) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  Fill(a, {Group("adam")}, {{"embed"}});
  Fill(b, {Group("adam")}, {{"head"}});
  a.mutable_info().aliases = {{"head", "embed"}};
  EXPECT_THAT(DiffGroups(a, b), IsEmpty());
}

TEST(DiffCounters, StepAndCounters) {
  CheckpointInfo a;
  CheckpointInfo b;
  a.step = 5;
  b.step = 8;
  a.counters = {{"global_steps", int64_t{5}}, {"loss_scale", 256.0}};
  b.counters = {{"global_steps", int64_t{8}}, {"skipped_steps", int64_t{0}}};
  EXPECT_THAT(Render(DiffCounters(a, b)),
              ElementsAre("step: 5 | 8", "counter global_steps: 5 | 8",
                          "counter loss_scale: 256 | (none) (note)",
                          "counter skipped_steps: (none) | 0 (note)"));
  EXPECT_THAT(DiffCounters(a, a), IsEmpty());
}

TEST(DiffCounters, AnUnknownStepIsANote) {
  CheckpointInfo a;
  CheckpointInfo b;
  a.step = 5;
  EXPECT_THAT(Render(DiffCounters(a, b)),
              ElementsAre("step: 5 | (none) (note)"));
}

TEST(DiffMomentumRecords, UnitsMatterAndStorageDoesNot) {
  CheckpointInfo a;
  CheckpointInfo b;
  EXPECT_THAT(DiffMomentumRecords(a, b), IsEmpty());
  a.momentum.emplace().stored_form = "whole matrices";
  EXPECT_THAT(DiffMomentumRecords(a, b), IsEmpty());
  b.momentum.emplace().stored_form = "flat partition";
  EXPECT_THAT(DiffMomentumRecords(a, b), IsEmpty());
  b.momentum->unit = MomentumUnit::kLossScaled;
  b.momentum->unit_scale = 256;
  EXPECT_THAT(
      Render(DiffMomentumRecords(a, b)),
      ElementsAre("momentum unit: true gradients | gradients times 256"));
  a.momentum = b.momentum;
  EXPECT_THAT(DiffMomentumRecords(a, b), IsEmpty());
  a.momentum->unit_scale = 512;
  EXPECT_THAT(
      Render(DiffMomentumRecords(a, b)),
      ElementsAre("momentum unit: gradients times 512 | gradients times 256"));
}

TEST(DiffMomentumRecords, UnknownUnitsAreNamed) {
  CheckpointInfo a;
  a.momentum.emplace().unit = MomentumUnit::kLossScaled;
  const auto diffs = DiffMomentumRecords(a, a);
  ASSERT_EQ(diffs.size(), 1U);
  EXPECT_FALSE(diffs[0].is_difference);
}

TEST(DiffMomentumRecords, Conventions) {
  CheckpointInfo a;
  CheckpointInfo b;
  a.momentum.emplace();
  b.momentum.emplace();
  b.momentum->convention = MomentumConvention::kAccumulate;
  EXPECT_THAT(Render(DiffMomentumRecords(a, b)),
              ElementsAre("momentum convention: lerp | accumulate"));
}

}  // namespace
}  // namespace muonstore
