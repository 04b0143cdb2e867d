#include "src/inspect/diff.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/testutil/memory_checkpoint.h"

namespace muonstore {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testutil::MemoryCheckpoint;
using testutil::UniqueValues;

void FillRun(MemoryCheckpoint& checkpoint, int32_t num_pieces) {
  CheckpointInfo& info = checkpoint.mutable_info();
  info.step = 5;
  info.num_ranks = num_pieces;
  ParamGroup group;
  group.name = "muon";
  group.hyper_parameters = {{"lr", 0.02}};
  info.groups = {group};
  info.momentum.emplace();
  for (const std::string kind : {"master", "momentum"}) {
    for (int64_t i = 1; i <= 3; ++i) {
      checkpoint.Add({.parameter = "w" + std::to_string(i),
                      .kind = kind,
                      .shape = {i, 5},
                      .num_pieces = num_pieces},
                     UniqueValues(5 * i, static_cast<float>(i)));
    }
  }
}

std::vector<std::string> Listed(const DiffReport& report) {
  std::vector<std::string> out;
  for (const TensorDiff& diff : report.worst) {
    out.push_back(diff.key.ToString() + " " +
                  std::string(TensorVerdictName(diff.verdict)));
  }
  return out;
}

TEST(DiffCheckpoints, TheContainerIsNoDifference) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  FillRun(a, 1);
  FillRun(b, 4);
  a.mutable_info().stage = 2;
  b.mutable_info().stage = 3;
  a.mutable_info().offload = "none";
  b.mutable_info().offload = "cpu";
  b.mutable_info().producer = "another";
  b.mutable_info().path = "/elsewhere";
  const DiffReport report = DiffCheckpoints(a, b, {});
  EXPECT_TRUE(report.same_state());
  EXPECT_EQ(report.count(TensorVerdict::kEqual), 6);
  EXPECT_EQ(report.num_tensors(), 6);
  EXPECT_THAT(report.worst, IsEmpty());
  EXPECT_THAT(report.values, IsEmpty());
}

TEST(DiffCheckpoints, OneElementOfOneTensor) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  FillRun(a, 2);
  FillRun(b, 3);
  const float value = -1;
  b.SetElement(4, 7, std::as_bytes(std::span(&value, 1)));
  const DiffReport report = DiffCheckpoints(a, b, {});
  EXPECT_FALSE(report.same_state());
  EXPECT_THAT(Listed(report), ElementsAre("w2/momentum different"));
  EXPECT_EQ(report.worst[0].first_element, 7);
}

TEST(DiffCheckpoints, TensorsOfOneSideOnly) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  FillRun(a, 1);
  FillRun(b, 1);
  a.Add({.parameter = "x", .shape = {1}, .group = -1}, UniqueValues(1));
  b.Add({.parameter = "y", .shape = {1}, .group = -1}, UniqueValues(1));
  const DiffReport report = DiffCheckpoints(a, b, {});
  EXPECT_FALSE(report.same_state());
  EXPECT_THAT(Listed(report),
              ElementsAre("x/momentum only in A", "y/momentum only in B"));
  EXPECT_FALSE(report.worst[0].shape_b.has_value());
  EXPECT_FALSE(report.worst[1].shape_a.has_value());
}

TEST(DiffCheckpoints, StateWithoutElementsIsEqualToNone) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  FillRun(a, 1);
  FillRun(b, 1);
  for (const char* kind : {"master", "momentum", "weight"}) {
    a.Add({.parameter = "empty", .kind = kind, .shape = {0, 5}},
          std::vector<float>());
  }
  b.Add({.parameter = "empty", .kind = "master", .shape = {0, 5}},
        std::vector<float>());
  EXPECT_TRUE(DiffCheckpoints(a, b, {}).same_state());
  const DiffReport report = DiffCheckpoints(b, a, {});
  EXPECT_TRUE(report.same_state());
  EXPECT_THAT(report.worst, IsEmpty());
  // Other shapes are.
  b.Add({.parameter = "empty", .kind = "momentum", .shape = {5, 0}},
        std::vector<float>());
  EXPECT_FALSE(DiffCheckpoints(a, b, {}).same_state());
}

TEST(DiffCheckpoints, AWeightThatFollowsFromTheMasterIsANote) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  FillRun(a, 1);
  FillRun(b, 1);
  const testutil::MemoryTensor weight = {.parameter = "w1",
                                         .kind = "weight",
                                         .shape = {1, 5},
                                         .dtype = DType::kBF16};
  a.Add(weight, UniqueValues(5));
  const DiffReport report = DiffCheckpoints(a, b, {});
  EXPECT_TRUE(report.same_state());
  EXPECT_EQ(report.count(TensorVerdict::kDerived), 1);
  EXPECT_THAT(report.worst, IsEmpty());
  EXPECT_THAT(report.notes,
              ElementsAre(testing::Pair(
                  "weight stored by A only, round(master) in B", 1)));
  EXPECT_TRUE(DiffCheckpoints(b, a, {}).same_state());
  // A frozen parameter has no master to follow from.
  a.Add({.parameter = "frozen", .kind = "weight", .shape = {1}, .group = -1},
        UniqueValues(1));
  EXPECT_FALSE(DiffCheckpoints(a, b, {}).same_state());
  EXPECT_FALSE(DiffCheckpoints(b, a, {}).same_state());
}

Finding Fault(const std::string& code, const std::string& tensor = "") {
  return {.severity = Finding::Severity::kFault,
          .code = code,
          .message = "lost",
          .place = {.file = "of one run", .tensor = tensor}};
}

TEST(DiffCheckpoints, AWeightThatShouldBeThereIsADifference) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  FillRun(a, 1);
  FillRun(b, 1);
  for (const std::string name : {"w1", "w2"}) {
    const auto rows = static_cast<int64_t>(name[1] - '0');
    a.Add({.parameter = name, .kind = "weight", .shape = {rows, 5}},
          UniqueValues(5 * rows));
  }
  b.mutable_info().findings = {Fault("weight_missing", "w2/weight")};
  const DiffReport report = DiffCheckpoints(a, b, {});
  EXPECT_FALSE(report.same_state());
  EXPECT_THAT(Listed(report), ElementsAre("w2/weight only in A"));
  EXPECT_EQ(report.count(TensorVerdict::kDerived), 1);
  EXPECT_THAT(Listed(DiffCheckpoints(b, a, {})),
              ElementsAre("w2/weight only in B"));
  // Also where only the weights are looked at.
  DiffOptions options;
  options.select = [](const CheckpointTensor& tensor) {
    return tensor.key.kind == kWeight;
  };
  EXPECT_FALSE(DiffCheckpoints(a, b, options).same_state());
}

TEST(DiffCheckpoints, AFaultOfOneIsADifference) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  FillRun(a, 1);
  FillRun(b, 1);
  b.mutable_info().findings = {Fault("step_missing")};
  DiffReport report = DiffCheckpoints(a, b, {});
  EXPECT_FALSE(report.same_state());
  ASSERT_EQ(report.values.size(), 1U);
  EXPECT_EQ(report.values[0].what, "fault");
  EXPECT_EQ(report.values[0].a, "(none)");
  EXPECT_EQ(report.values[0].b, "step_missing: lost");
  EXPECT_FALSE(DiffCheckpoints(b, a, {}).same_state());
  // Both lack the same: a note.
  a.mutable_info().findings = b.info().findings;
  a.mutable_info().findings[0].place.file = "of another run";
  report = DiffCheckpoints(a, b, {});
  EXPECT_TRUE(report.same_state());
  EXPECT_EQ(report.values.size(), 1U);
  b.mutable_info().findings[0].severity = Finding::Severity::kWarning;
  a.mutable_info().findings.clear();
  EXPECT_TRUE(DiffCheckpoints(a, b, {}).same_state());
}

TEST(DiffCheckpoints, TiedParametersUnderEitherName) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  a.Add({.parameter = "embed", .shape = {2}}, UniqueValues(2));
  b.Add({.parameter = "head", .shape = {2}}, UniqueValues(2));
  a.mutable_info().aliases = {{"head", "embed"}};
  b.mutable_info().aliases = {{"embed", "head"}};
  const DiffReport report = DiffCheckpoints(a, b, {});
  EXPECT_TRUE(report.same_state());
  EXPECT_EQ(report.num_tensors(), 1);
}

TEST(DiffCheckpoints, EqualNumbersInOtherUnitsAreOtherMomentum) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  FillRun(a, 1);
  FillRun(b, 1);
  b.mutable_info().momentum->unit = MomentumUnit::kLossScaled;
  EXPECT_FALSE(DiffCheckpoints(a, b, {}).same_state());
  DiffOptions masters;
  masters.select = [](const CheckpointTensor& tensor) {
    return tensor.key.kind == kMaster;
  };
  EXPECT_TRUE(DiffCheckpoints(a, b, masters).same_state());
}

TEST(DiffCheckpoints, HyperParametersCountUnlessTensorsAreSelected) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  FillRun(a, 1);
  FillRun(b, 1);
  b.mutable_info().groups[0].hyper_parameters = {{"lr", 0.01}};
  b.mutable_info().step = 6;
  const DiffReport report = DiffCheckpoints(a, b, {});
  EXPECT_FALSE(report.same_state());
  EXPECT_EQ(report.values.size(), 2U);
  DiffOptions selected;
  selected.select = [](const CheckpointTensor&) { return true; };
  EXPECT_TRUE(DiffCheckpoints(a, b, selected).same_state());
}

TEST(DiffCheckpoints, TheWorstAreKept) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  for (int i = 0; i < 50; ++i) {
    const std::string name = "w" + std::to_string(100 + i);
    a.Add({.parameter = name, .shape = {1}}, std::vector<float>{100});
    b.Add({.parameter = name, .shape = {1}},
          std::vector<float>{100.0F + static_cast<float>(i)});
  }
  b.Add({.parameter = "new", .shape = {1}}, UniqueValues(1));
  for (const int32_t jobs : {1, 3}) {
    DiffOptions options;
    options.max_listed = 3;
    options.jobs = jobs;
    const DiffReport report = DiffCheckpoints(a, b, options);
    EXPECT_THAT(Listed(report),
                ElementsAre("new/momentum only in B", "w149/momentum different",
                            "w148/momentum different"));
    EXPECT_EQ(report.count(TensorVerdict::kDifferent), 49);
    EXPECT_EQ(report.count(TensorVerdict::kEqual), 1);
  }
}

TEST(DiffCheckpoints, EqualUpToDTypeIsTheSameStateAndANote) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  for (const std::string name : {"v", "w"}) {
    a.Add({.parameter = name, .shape = {2}}, std::vector<float>{1, 2});
    b.Add({.parameter = name, .shape = {2}, .dtype = DType::kBF16},
          std::vector<float>{1, 2});
  }
  const DiffReport report = DiffCheckpoints(a, b, {});
  EXPECT_TRUE(report.same_state());
  EXPECT_THAT(report.notes, ElementsAre(testing::Pair(
                                "equal after widening bf16 to f32", 2)));
  EXPECT_THAT(report.worst, IsEmpty());
}

TEST(DiffCheckpoints, CloseIsTheSameState) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  a.Add({.parameter = "w", .shape = {1}}, std::vector<float>{1});
  b.Add({.parameter = "w", .shape = {1}}, std::vector<float>{1.001F});
  EXPECT_FALSE(DiffCheckpoints(a, b, {}).same_state());
  DiffOptions options;
  options.tolerance = {.rtol = 0.01};
  const DiffReport report = DiffCheckpoints(a, b, options);
  EXPECT_TRUE(report.same_state());
  EXPECT_EQ(report.count(TensorVerdict::kClose), 1);
}

TEST(DiffCheckpoints, RefusesTolerancesWithoutAMeaning) {
  const MemoryCheckpoint a;
  for (const double limit : {-1.0, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(DiffCheckpoints(a, a, {.tolerance = {.rtol = limit}}), Error);
    EXPECT_THROW(DiffCheckpoints(a, a, {.tolerance = {.atol = limit}}), Error);
  }
}

TEST(DiffCheckpoints, ProgressCountsBothSides) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  FillRun(a, 1);
  FillRun(b, 1);
  uint64_t last = 0;
  DiffOptions options;
  options.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_EQ(total, 2U * 2 * 30 * 4);
    last = done;
  };
  (void)DiffCheckpoints(a, b, options);
  EXPECT_EQ(last, 2U * 2 * 30 * 4);
}

TEST(DiffCheckpoints, DamageIsAnError) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  FillRun(a, 1);
  FillRun(b, 1);
  b.Poison(2);
  EXPECT_THROW(DiffCheckpoints(a, b, {}), Error);
}

}  // namespace
}  // namespace muonstore
