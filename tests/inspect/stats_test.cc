#include "src/inspect/stats.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/inspect/matrices.h"
#include "tests/testutil/memory_checkpoint.h"

namespace muonstore {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testutil::HashedMatrix;
using testutil::MemoryCheckpoint;
using testutil::UniqueValues;

// Requests every tensor.
StatsRequest All(const Checkpoint& checkpoint) {
  StatsRequest request;
  request.tensors.resize(checkpoint.tensors().size());
  std::iota(request.tensors.begin(), request.tensors.end(), size_t{0});
  return request;
}

// |rows| of the flattened tensor, by hand.
double NormOfRows(const std::vector<float>& values, int64_t begin, int64_t end,
                  int64_t cols) {
  double sum = 0;
  for (int64_t i = begin * cols; i < end * cols; ++i) {
    const auto x = static_cast<double>(values[static_cast<size_t>(i)]);
    sum += x * x;
  }
  return std::sqrt(sum);
}

TEST(ComputeStats, OneReportAMatrixOfTheLayout) {
  MemoryCheckpoint checkpoint;
  const auto values = UniqueValues(12 * 5);
  checkpoint.Add({.parameter = "qkv", .shape = {12, 5}, .num_pieces = 4},
                 values);
  StatsRequest request = All(checkpoint);
  request.layout = MatrixLayout::PerHead(4);
  auto reports = ComputeStats(checkpoint, request);
  ASSERT_EQ(reports.size(), 4U);
  for (int64_t head = 0; head < 4; ++head) {
    const MatrixReport& report = reports[static_cast<size_t>(head)];
    EXPECT_EQ(report.matrix, head);
    EXPECT_EQ(report.num_matrices, 4);
    EXPECT_EQ(report.stats->rows, 3);
    EXPECT_EQ(report.view.offset, head * 15);
    EXPECT_NEAR(report.stats->frobenius,
                NormOfRows(values, 3 * head, 3 * head + 3, 5), 1e-9);
  }
  request.layout = MatrixLayout::PackedRows({2, 3, 7});
  reports = ComputeStats(checkpoint, request);
  ASSERT_EQ(reports.size(), 3U);
  EXPECT_NEAR(reports[0].stats->frobenius, NormOfRows(values, 0, 2, 5), 1e-9);
  EXPECT_NEAR(reports[1].stats->frobenius, NormOfRows(values, 2, 5, 5), 1e-9);
  EXPECT_NEAR(reports[2].stats->frobenius, NormOfRows(values, 5, 12, 5), 1e-9);
}

TEST(ComputeStats, WithoutALayoutTheRecordedOneOfEachParameterIsTaken) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "qkv", .shape = {12, 5}}, UniqueValues(60));
  checkpoint.Add({.parameter = "fc", .shape = {12, 5}}, UniqueValues(60));
  checkpoint.mutable_info().matrix_layouts = {
      {"qkv", MatrixLayout::PackedRows({2, 3, 7}).ToString()}};
  StatsRequest request = All(checkpoint);
  EXPECT_EQ(ComputeStats(checkpoint, request).size(), 3U + 1U);
  request.layout = MatrixLayout::Whole();
  EXPECT_EQ(ComputeStats(checkpoint, request).size(), 2U);
  request.layout.reset();
  checkpoint.mutable_info().matrix_layouts["fc"] = "per_head[many]";
  EXPECT_THROW(ComputeStats(checkpoint, request), Error);
}

TEST(ComputeStats, EveryRankOfTensor) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "scalar", .shape = {}}, std::vector<float>{3});
  checkpoint.Add({.parameter = "bias", .shape = {4}}, UniqueValues(4));
  checkpoint.Add({.parameter = "conv", .shape = {3, 2, 2, 2}},
                 HashedMatrix(3, 8));
  checkpoint.Add({.parameter = "empty", .shape = {0, 7}}, std::vector<float>());
  const auto reports = ComputeStats(checkpoint, All(checkpoint));
  std::vector<std::tuple<std::string, int64_t, int64_t>> sizes;
  for (const MatrixReport& report : reports) {
    sizes.emplace_back(report.key.parameter, report.stats->rows,
                       report.stats->cols);
  }
  EXPECT_THAT(sizes,
              ElementsAre(std::tuple("scalar", 1, 1), std::tuple("bias", 1, 4),
                          std::tuple("conv", 3, 8)));
}

TEST(ComputeStats, LayoutThatDoesNotFitNamesShapeAndSizes) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "qkv", .shape = {12, 5}}, UniqueValues(60));
  StatsRequest request = All(checkpoint);
  request.layout = MatrixLayout::PackedRows({4, 4, 5});
  try {
    (void)ComputeStats(checkpoint, request);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.place().tensor, "qkv/momentum");
    EXPECT_THAT(error.what(), HasSubstr("[12, 5]"));
    EXPECT_THAT(error.what(), HasSubstr("4"));
  }
}

TEST(ComputeStats, RatioToTheMaster) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "w", .kind = "master", .shape = {4, 3}},
                 UniqueValues(12, 2));
  checkpoint.Add({.parameter = "w", .shape = {4, 3}, .num_pieces = 2},
                 UniqueValues(12, 0.5));
  checkpoint.Add({.parameter = "v", .kind = "master", .shape = {2}},
                 std::vector<float>{0, 0});
  checkpoint.Add({.parameter = "v", .shape = {2}}, std::vector<float>{1, 2});
  checkpoint.Add({.parameter = "alone", .shape = {2}},
                 std::vector<float>{1, 2});
  const auto reports = ComputeStats(checkpoint, All(checkpoint));
  EXPECT_FALSE(reports[0].ratio_to_master.has_value());
  EXPECT_NEAR(*reports[1].ratio_to_master, 0.25, 1e-12);
  EXPECT_FALSE(reports[3].ratio_to_master.has_value());
  EXPECT_FALSE(reports[4].ratio_to_master.has_value());
}

TEST(ComputeStats, FlagsWhatIsIll) {
  MemoryCheckpoint checkpoint;
  std::vector<float> broken = UniqueValues(6);
  broken[4] = std::numeric_limits<float>::infinity();
  checkpoint.Add({.parameter = "broken", .shape = {2, 3}}, broken);
  checkpoint.Add({.parameter = "zero", .shape = {2, 3}},
                 std::vector<float>(6, 0.0F));
  // Zeros do not count: two of three nonzero elements are denormal.
  checkpoint.Add({.parameter = "denormal", .shape = {2, 3}},
                 std::vector<float>{0, 0, 0, 1e-40F, 1e-41F, 1});
  checkpoint.Add({.parameter = "half", .shape = {1, 2}},
                 std::vector<float>{1e-40F, 1});
  checkpoint.Add({.parameter = "well", .shape = {2, 3}}, UniqueValues(6));
  const auto reports = ComputeStats(checkpoint, All(checkpoint));
  EXPECT_THAT(reports[0].flags, ElementsAre(MatrixFlag::kNonFinite));
  EXPECT_THAT(reports[1].flags, ElementsAre(MatrixFlag::kZero));
  EXPECT_THAT(reports[2].flags, ElementsAre(MatrixFlag::kDenormal));
  EXPECT_THAT(reports[3].flags, IsEmpty());
  EXPECT_THAT(reports[4].flags, IsEmpty());
  EXPECT_TRUE(reports[0].Has(MatrixFlag::kNonFinite));
  EXPECT_FALSE(reports[0].Has(MatrixFlag::kZero));
}

TEST(ComputeStats, ComparesWithAnotherCheckpoint) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  const auto add = [](MemoryCheckpoint& to, const std::string& name,
                      std::vector<int64_t> shape, std::vector<float> values,
                      int32_t pieces) {
    to.Add({.parameter = name, .shape = std::move(shape), .num_pieces = pieces},
           values);
  };
  add(a, "same", {2, 2}, {1, 2, 3, 4}, 1);
  add(b, "same", {2, 2}, {1, 2, 3, 4}, 3);
  add(a, "turned", {2, 2}, {1, 2, 3, 4}, 2);
  add(b, "turned", {2, 2}, {-2, -4, -6, -8}, 1);
  add(a, "reshaped", {2, 3}, UniqueValues(6), 1);
  add(b, "reshaped", {3, 2}, UniqueValues(6), 1);
  add(a, "gone", {1}, {1}, 1);
  StatsRequest request = All(a);
  request.other = &b;
  const auto reports = ComputeStats(a, request);
  EXPECT_THAT(reports[0].flags, ElementsAre(MatrixFlag::kIdentical));
  EXPECT_NEAR(*reports[0].cosine, 1, 1e-12);
  EXPECT_THAT(reports[1].flags, IsEmpty());
  EXPECT_NEAR(*reports[1].cosine, -1, 1e-12);
  EXPECT_NEAR(*reports[0].norm_ratio, 1, 1e-12);
  EXPECT_NEAR(*reports[1].norm_ratio, 0.5, 1e-12);
  EXPECT_THAT(reports[2].note, HasSubstr("[3, 2]"));
  EXPECT_FALSE(reports[2].cosine.has_value());
  EXPECT_EQ(reports[3].note, "not in the other checkpoint");
}

TEST(ComputeStats, TiedNamesMeetAcrossCheckpoints) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  a.Add({.parameter = "head", .shape = {2}}, std::vector<float>{1, 2});
  b.Add({.parameter = "embed", .shape = {2}}, std::vector<float>{1, 2});
  b.mutable_info().aliases = {{"head", "embed"}};
  StatsRequest request = All(a);
  request.other = &b;
  EXPECT_TRUE(ComputeStats(a, request)[0].Has(MatrixFlag::kIdentical));
}

TEST(ComputeStats, MissingElementsAreAReportOfTheirMatrix) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "w", .shape = {4, 3}}, UniqueValues(12));
  checkpoint.mutable_tensor(0).missing = {{10, 12}};
  StatsRequest request = All(checkpoint);
  request.layout = MatrixLayout::PerHead(2);
  const auto reports = ComputeStats(checkpoint, request);
  EXPECT_TRUE(reports[0].stats.has_value());
  EXPECT_FALSE(reports[1].stats.has_value());
  EXPECT_THAT(reports[1].flags, ElementsAre(MatrixFlag::kMissing));
}

TEST(ComputeStats, ComplexNumbersHaveNone) {
  MemoryCheckpoint checkpoint;
  const std::vector<std::byte> bytes(16);
  checkpoint.Add({.parameter = "z", .shape = {2}, .dtype = DType::kC64}, bytes);
  const auto reports = ComputeStats(checkpoint, All(checkpoint));
  EXPECT_FALSE(reports[0].stats.has_value());
  EXPECT_THAT(reports[0].note, HasSubstr(std::string(DTypeName(DType::kC64))));
}

TEST(ComputeStats, SameOnAnyNumberOfThreads) {
  MemoryCheckpoint checkpoint;
  for (int64_t i = 1; i <= 40; ++i) {
    checkpoint.Add({.parameter = "w" + std::to_string(i), .shape = {i, 7}},
                   HashedMatrix(i, 7));
  }
  uint64_t done = 0;
  StatsRequest request = All(checkpoint);
  request.progress = [&](uint64_t bytes, uint64_t total) {
    done = bytes;
    EXPECT_EQ(total, 40U * 41 / 2 * 7 * 4);
  };
  const auto one = ComputeStats(checkpoint, request);
  EXPECT_EQ(done, 40U * 41 / 2 * 7 * 4);
  request.jobs = 5;
  const auto five = ComputeStats(checkpoint, request);
  ASSERT_EQ(one.size(), five.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].key, five[i].key);
    EXPECT_EQ(one[i].stats->frobenius, five[i].stats->frobenius);
    EXPECT_EQ(one[i].stats->singular_values, five[i].stats->singular_values);
  }
}

TEST(ComputeStats, DamageNamesTheTensor) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "w", .shape = {2}}, UniqueValues(2));
  checkpoint.Poison(0);
  try {
    (void)ComputeStats(checkpoint, All(checkpoint));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.place().tensor, "w/momentum");
  }
}

MatrixReport NamedReport(const std::string& name, std::vector<MatrixFlag> flags,
                         double stable_rank, std::optional<double> ratio,
                         std::optional<double> norm_ratio = std::nullopt) {
  MatrixReport out;
  out.key.parameter = name;
  out.flags = std::move(flags);
  out.stats = MatrixStats{.rows = 10, .cols = 20};
  out.stats->stable_rank = stable_rank;
  out.ratio_to_master = ratio;
  out.norm_ratio = norm_ratio;
  return out;
}

std::vector<std::string> WorstFirst(std::vector<MatrixReport> reports) {
  SortWorstFirst(reports);
  std::vector<std::string> names;
  for (const MatrixReport& r : reports) names.push_back(r.key.parameter);
  return names;
}

TEST(SortWorstFirst, ByFlagThenStableRankThenRatio) {
  const std::vector<MatrixReport> reports = {
      NamedReport("flat", {}, 9, 1),
      NamedReport("denormal", {MatrixFlag::kDenormal}, 1, 1),
      NamedReport("collapsed", {}, 1, 1),
      NamedReport("collapsed and large", {}, 1, 7),
      NamedReport("zero", {MatrixFlag::kZero}, 0, 0),
      NamedReport("identical", {MatrixFlag::kIdentical}, 5, 1),
      NamedReport("nonfinite", {MatrixFlag::kNonFinite, MatrixFlag::kDenormal},
                  5, 1),
      NamedReport("missing", {MatrixFlag::kMissing}, 5, 1),
  };
  EXPECT_THAT(
      WorstFirst(reports),
      ElementsAre("missing", "nonfinite", "zero", "identical", "denormal",
                  "collapsed and large", "collapsed", "flat"));
}

TEST(SortWorstFirst, ALayerOfAnotherSizeIsNotBehindLowStableRanks) {
  EXPECT_THAT(
      WorstFirst({NamedReport("collapsed", {}, 1, 0.02),
                  NamedReport("even", {}, 8, 0.02),
                  NamedReport("large", {}, 9, 84.95),
                  NamedReport("tiny", {}, 9, 1e-7),
                  NamedReport("just within", {}, 5, 0.19),
                  NamedReport("just beyond", {}, 7, 0.21),
                  NamedReport("denormal", {MatrixFlag::kDenormal}, 9, 0.02)}),
      ElementsAre("denormal", "tiny", "large", "just beyond", "collapsed",
                  "just within", "even"));
}

TEST(SortWorstFirst, TheMedianOfAnEvenNumberLiesBetween) {
  // Around 0.1: neither is further than a factor of 10 from it.
  EXPECT_THAT(
      WorstFirst({NamedReport("b", {}, 2, 0.02), NamedReport("c", {}, 3, 0.02),
                  NamedReport("d", {}, 4, 0.5), NamedReport("a", {}, 1, 0.5)}),
      ElementsAre("a", "b", "c", "d"));
}

TEST(SortWorstFirst, TwoRatiosHaveNoOutlier) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_THAT(
      WorstFirst({NamedReport("flat", {}, 9, 1e6),
                  NamedReport("none", {}, 5, {}), NamedReport("zero", {}, 4, 0),
                  NamedReport("infinite", {}, 3, inf),
                  NamedReport("collapsed", {}, 1, 1)}),
      ElementsAre("collapsed", "infinite", "zero", "none", "flat"));
}

TEST(SortWorstFirst, WhatGrewOrShrankSinceTheOtherCheckpointIsFirst) {
  EXPECT_THAT(
      WorstFirst({NamedReport("collapsed", {}, 1, 1, 1.9),
                  NamedReport("large", {}, 9, 100, 1),
                  NamedReport("even", {}, 9, 1, 0.6),
                  NamedReport("grew", {}, 9, 1, 2.1),
                  NamedReport("shrank", {}, 9, 1, .1),
                  NamedReport("zero", {MatrixFlag::kZero}, 0, 0)}),
      ElementsAre("zero", "shrank", "grew", "large", "collapsed", "even"));
}

TEST(MatrixFlag, NamesReadBack) {
  for (const MatrixFlag flag :
       {MatrixFlag::kMissing, MatrixFlag::kNonFinite, MatrixFlag::kZero,
        MatrixFlag::kIdentical, MatrixFlag::kDenormal}) {
    EXPECT_EQ(ParseMatrixFlag(MatrixFlagName(flag)), flag);
  }
  EXPECT_FALSE(ParseMatrixFlag("nan").has_value());
}

}  // namespace
}  // namespace muonstore
