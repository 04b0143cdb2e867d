#include "src/inspect/matrix_stats.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/inspect/matrices.h"
#include "tests/testutil/memory_checkpoint.h"

namespace muonstore {
namespace {

using testutil::HashedMatrix;
using testutil::JacobiSingularValues;
using testutil::MemoryCheckpoint;
using testutil::UniqueValues;

constexpr float kInf = std::numeric_limits<float>::infinity();

MatrixView Whole(int64_t rows, int64_t cols) {
  return {.offset = 0, .rows = rows, .cols = cols, .row_stride = cols};
}

// Stats of one matrix alone in a checkpoint cut into three pieces.
MatrixStats StatsOf(const std::vector<float>& values, int64_t rows,
                    int64_t cols, DType dtype = DType::kF32) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "w",
                  .shape = {rows, cols},
                  .dtype = dtype,
                  .num_pieces = 3},
                 values);
  MatrixReader reader(checkpoint, 0, Whole(rows, cols));
  return ComputeMatrixStats(reader, 3);
}

TEST(MatrixReader, ReadsRowsThatLieApart) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "w", .shape = {8, 6}, .num_pieces = 5},
                 UniqueValues(48));
  // Columns 2..4 of every second row, from row 1.
  const MatrixView view{.offset = 8, .rows = 3, .cols = 3, .row_stride = 12};
  MatrixReader reader(checkpoint, 0, view);
  std::vector<double> expected;
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 3; ++j) {
      expected.push_back(0.25 * static_cast<double>(8 + i * 12 + j + 1));
    }
  }
  for (int64_t begin = 0; begin <= 9; ++begin) {
    for (int64_t end = begin; end <= 9; ++end) {
      const auto got = reader.Read({begin, end});
      EXPECT_EQ(std::vector<double>(got.begin(), got.end()),
                std::vector<double>(expected.begin() + begin,
                                    expected.begin() + end));
    }
  }
}

TEST(MatrixReader, KnowsWhetherMissingElementsAreItsOwn) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "w", .shape = {8, 6}}, UniqueValues(48));
  const MatrixView view{.offset = 8, .rows = 3, .cols = 3, .row_stride = 12};
  const auto incomplete = [&](ElementRange missing) {
    checkpoint.mutable_tensor(0).missing = {missing};
    return MatrixReader(checkpoint, 0, view).incomplete();
  };
  EXPECT_FALSE(incomplete({0, 8}));
  EXPECT_TRUE(incomplete({8, 9}));
  EXPECT_TRUE(incomplete({10, 11}));
  EXPECT_FALSE(incomplete({11, 20}));
  EXPECT_TRUE(incomplete({11, 21}));
  EXPECT_TRUE(incomplete({34, 48}));
  EXPECT_FALSE(incomplete({35, 48}));
}

TEST(MatrixStats, AgreeWithNaiveLoops) {
  for (const auto& [rows, cols] :
       {std::pair{7, 13}, std::pair{13, 7}, std::pair{1, 9}, std::pair{9, 1}}) {
    const std::vector<float> values = HashedMatrix(rows, cols);
    const MatrixStats stats = StatsOf(values, rows, cols);
    double squares = 0;
    double smallest = 1e9;
    double largest = -1e9;
    for (const float value : values) {
      const auto x = static_cast<double>(value);
      squares += x * x;
      smallest = std::min(smallest, x);
      largest = std::max(largest, x);
    }
    EXPECT_NEAR(stats.frobenius, std::sqrt(squares), 1e-14);
    EXPECT_NEAR(stats.rms(), std::sqrt(squares / (rows * cols)), 1e-14);
    EXPECT_EQ(stats.min, smallest);
    EXPECT_EQ(stats.max, largest);
    EXPECT_EQ(stats.num_nonfinite, 0);
    const auto sigma = JacobiSingularValues(values, rows, cols);
    EXPECT_NEAR(stats.singular_values[0], sigma[0], 1e-12);
    EXPECT_NEAR(*stats.stable_rank, squares / (sigma[0] * sigma[0]), 1e-10);
  }
}

TEST(MatrixStats, ExtremeScalesNeitherOverflowNorVanish) {
  const std::vector<float> base = HashedMatrix(24, 30);
  const MatrixStats reference = StatsOf(base, 24, 30);
  for (const double scale : {0x1p100, 0x1p-100, 0x1p127, 0x1p-120}) {
    std::vector<float> values;
    for (const float value : base) {
      values.push_back(static_cast<float>(static_cast<double>(value) * scale));
    }
    const MatrixStats stats = StatsOf(values, 24, 30);
    EXPECT_NEAR(stats.frobenius / scale, reference.frobenius, 1e-6);
    EXPECT_NEAR(stats.singular_values[0] / scale, reference.singular_values[0],
                1e-6);
    EXPECT_NEAR(*stats.stable_rank, *reference.stable_rank, 1e-5);
  }
}

TEST(MatrixStats, DoublesBeyondTheRangeOfFloat) {
  for (const double scale : {1e250, 1e-250, 1e-310}) {
    std::vector<double> values = {3 * scale, 0, 0, 4 * scale};
    MemoryCheckpoint checkpoint;
    checkpoint.Add({.parameter = "w", .shape = {2, 2}, .dtype = DType::kF64},
                   std::as_bytes(std::span(values)));
    MatrixReader reader(checkpoint, 0, Whole(2, 2));
    const MatrixStats stats = ComputeMatrixStats(reader, 2);
    EXPECT_NEAR(stats.frobenius / scale, 5, 1e-6);
    EXPECT_NEAR(stats.singular_values[0] / scale, 4, 1e-6);
    EXPECT_NEAR(stats.singular_values[1] / scale, 3, 1e-6);
    EXPECT_NEAR(*stats.stable_rank, 25.0 / 16, 1e-6);
  }
}

TEST(MatrixStats, NonFiniteElementsAreCountedAndLeftOut) {
  std::vector<float> values = UniqueValues(30 * 40, 1);
  values[5 * 40 + 7] = kInf;
  values[17 * 40 + 3] = std::nanf("");
  const MatrixStats stats = StatsOf(values, 30, 40);
  EXPECT_EQ(stats.num_nonfinite, 2);
  EXPECT_EQ(stats.first_nonfinite, (MatrixIndex{5, 7}));
  EXPECT_TRUE(stats.singular_values.empty());
  EXPECT_FALSE(stats.stable_rank.has_value());
  EXPECT_EQ(stats.min, 1);
  EXPECT_EQ(stats.max, 1200);
  double squares = 0;
  for (const float value : values) {
    if (std::isfinite(value)) squares += static_cast<double>(value * value);
  }
  EXPECT_NEAR(stats.frobenius, std::sqrt(squares), 1e-6);
  EXPECT_NEAR(stats.rms(), std::sqrt(squares / 1198), 1e-6);
}

TEST(MatrixStats, NothingFinite) {
  const MatrixStats stats = StatsOf({kInf, -kInf}, 1, 2);
  EXPECT_EQ(stats.num_nonfinite, 2);
  EXPECT_FALSE(stats.min.has_value());
  EXPECT_FALSE(stats.max.has_value());
  EXPECT_EQ(stats.rms(), 0);
}

TEST(MatrixStats, ZeroMatrixHasStableRankZero) {
  for (const auto& [rows, cols] :
       {std::pair{6, 5}, std::pair{1, 4}, std::pair{600, 600}}) {
    const std::vector<float> zeros(static_cast<size_t>(rows * cols), -0.0F);
    const MatrixStats stats = StatsOf(zeros, rows, cols);
    EXPECT_EQ(stats.stable_rank, 0);
    EXPECT_EQ(stats.singular_values[0], 0);
    EXPECT_EQ(stats.zero_fraction(), 1);
  }
}

TEST(MatrixStats, EmptyMatrix) {
  const MatrixStats stats = StatsOf({}, 0, 0);
  EXPECT_EQ(stats.frobenius, 0);
  EXPECT_EQ(stats.rms(), 0);
  EXPECT_EQ(stats.zero_fraction(), 0);
  EXPECT_EQ(stats.denormal_fraction(), 0);
  EXPECT_TRUE(stats.singular_values.empty());
}

TEST(MatrixStats, RankOneHasStableRankOne) {
  std::vector<float> values;
  for (int i = 1; i <= 20; ++i) {
    for (int j = 1; j <= 30; ++j) values.push_back(static_cast<float>(i * j));
  }
  const MatrixStats stats = StatsOf(values, 20, 30);
  EXPECT_NEAR(*stats.stable_rank, 1, 1e-12);
  EXPECT_GE(*stats.stable_rank, 1);
  EXPECT_EQ(stats.singular_values[1], 0);
}

TEST(MatrixStats, DenormalsGoByTheStoredType) {
  const std::vector<float> values = {0,        0x1p-127F, 0x1p-130F,
                                     0x1p-20F, 0x1p-14F,  1};
  const MatrixStats f32 = StatsOf(values, 2, 3);
  EXPECT_EQ(f32.num_denormal, 2);
  EXPECT_EQ(f32.num_zero, 1);
  EXPECT_DOUBLE_EQ(f32.denormal_fraction(), 2.0 / 6);
  const MatrixStats bf16 = StatsOf(values, 2, 3, DType::kBF16);
  EXPECT_EQ(bf16.num_denormal, 2);
  // In f16 the two smallest round to zero and 2^-20 is denormal.
  const MatrixStats f16 = StatsOf(values, 2, 3, DType::kF16);
  EXPECT_EQ(f16.num_zero, 3);
  EXPECT_EQ(f16.num_denormal, 1);
}

TEST(MatrixStats, MatricesLargerThanAPiece) {
  // Two and a bit pieces; the last row holds the only negative and infinite.
  const int64_t cols = 1000;
  const int64_t rows = 2 * kReadElements / cols + 3;
  std::vector<float> values(static_cast<size_t>(rows * cols), 2.0F);
  values[static_cast<size_t>(rows * cols - 5)] = -3;
  values[static_cast<size_t>(rows * cols - 2)] = kInf;
  const MatrixStats stats = StatsOf(values, rows, cols);
  EXPECT_EQ(stats.min, -3);
  EXPECT_EQ(stats.first_nonfinite, (MatrixIndex{rows - 1, cols - 2}));
  EXPECT_NEAR(stats.frobenius,
              std::sqrt(4.0 * static_cast<double>(rows * cols - 2) + 9), 1e-8);
}

// Two matrices side by side in one checkpoint.
MatrixComparison Compare(const std::vector<float>& a,
                         const std::vector<float>& b, int64_t rows,
                         int64_t cols) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "a", .shape = {rows, cols}}, a);
  checkpoint.Add({.parameter = "b", .shape = {rows, cols}, .num_pieces = 2}, b);
  MatrixReader left(checkpoint, 0, Whole(rows, cols));
  MatrixReader right(checkpoint, 1, Whole(rows, cols));
  return CompareMatrices(left, right);
}

TEST(CompareMatrices, CosineAndIdentity) {
  const std::vector<float> a = {1, 2, 2, 0};
  EXPECT_TRUE(Compare(a, a, 2, 2).identical);
  EXPECT_DOUBLE_EQ(*Compare(a, a, 2, 2).cosine, 1);
  const auto opposite = Compare(a, {-2, -4, -4, 0}, 2, 2);
  EXPECT_FALSE(opposite.identical);
  EXPECT_DOUBLE_EQ(*opposite.cosine, -1);
  EXPECT_DOUBLE_EQ(*Compare(a, {2, -1, 0, 5}, 2, 2).cosine, 0);
  EXPECT_DOUBLE_EQ(*Compare({6, 8}, {0, 5}, 1, 2).norm_ratio, 2);
  EXPECT_FALSE(Compare(a, {1, 2, 2, -0.0F}, 2, 2).identical);
}

TEST(CompareMatrices, CosineOfExtremeScales) {
  const auto got =
      Compare({1e30F, 2e30F, 2e30F}, {1e-30F, 2e-30F, 2e-30F}, 1, 3);
  EXPECT_NEAR(*got.cosine, 1, 1e-6);
}

TEST(CompareMatrices, NoCosineWithoutDirection) {
  EXPECT_FALSE(Compare({0, 0}, {1, 2}, 1, 2).cosine.has_value());
  EXPECT_FALSE(Compare({0, 0}, {1, 2}, 1, 2).norm_ratio.has_value());
  EXPECT_FALSE(Compare({1, 2}, {0, 0}, 1, 2).norm_ratio.has_value());
  EXPECT_FALSE(Compare({kInf, 0}, {1, 2}, 1, 2).cosine.has_value());
  EXPECT_TRUE(Compare({kInf, 0}, {kInf, 0}, 1, 2).identical);
}

TEST(CompareMatrices, RefusesDifferentSizes) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "a", .shape = {2, 3}}, UniqueValues(6));
  MatrixReader left(checkpoint, 0, Whole(2, 3));
  MatrixReader right(checkpoint, 0, Whole(3, 2));
  EXPECT_THROW(CompareMatrices(left, right), Error);
}

}  // namespace
}  // namespace muonstore
