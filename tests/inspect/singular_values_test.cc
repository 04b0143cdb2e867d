#include "src/inspect/singular_values.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "src/inspect/block_lanczos.h"
#include "tests/inspect/matrices.h"

namespace muonstore {
namespace {

using testutil::HashedMatrix;
using testutil::JacobiSingularValues;
using testutil::MatrixWithSingularValues;

struct NumpyCase {
  int64_t rows;
  int64_t cols;
  std::vector<double> values;
};

// numpy.linalg.svd of HashedMatrix in float64; above and below kExactSide.
const std::vector<NumpyCase>& NumpyCases() {
  static const std::vector<NumpyCase> kCases = {
      {1, 1, {0.5}},
      {2, 3, {0.8775260943866762, 0.13048128739593737}},
      {7, 13, {1.6928616370650014, 1.482191672777144, 1.1565481759053826}},
      {24, 72, {3.5246171369981787, 3.4640020458125735, 3.3139819587442116}},
      {72, 24, {3.6219399343404053, 3.5200845687649864, 3.2268300659274676}},
      {200, 333, {9.195869859322663, 9.054496186625638, 8.951084358720575}},
      {520, 530, {13.164202517664723, 13.124961497651988, 13.022078310946577}},
      {700, 600, {14.621918706330224, 14.30310260145836, 14.28998400132434}},
      {600, 1500, {18.18097373551605, 18.104078150494612, 18.05246254036204}},
  };
  return kCases;
}

TEST(TopSingularValues, AgreeWithNumpy) {
  for (const NumpyCase& expected : NumpyCases()) {
    SCOPED_TRACE(testing::Message() << expected.rows << " x " << expected.cols);
    const std::vector<float> matrix =
        HashedMatrix(expected.rows, expected.cols);
    const SingularValues got =
        TopSingularValues({matrix, expected.rows, expected.cols}, 3);
    EXPECT_TRUE(got.converged);
    ASSERT_EQ(got.values.size(), expected.values.size());
    for (size_t i = 0; i < got.values.size(); ++i) {
      EXPECT_NEAR(got.values[i], expected.values[i], 1e-9 * expected.values[0]);
    }
  }
}

TEST(TopSingularValues, AgreeWithJacobiForAllSmallShapes) {
  for (int64_t rows = 1; rows <= 9; ++rows) {
    for (int64_t cols = 1; cols <= 9; ++cols) {
      const std::vector<float> matrix = HashedMatrix(rows, cols);
      const std::vector<double> expected =
          JacobiSingularValues(matrix, rows, cols);
      const SingularValues got = TopSingularValues({matrix, rows, cols}, 16);
      ASSERT_EQ(got.values.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(got.values[i], expected[i], 1e-8 * expected[0]);
      }
    }
  }
}

TEST(TopSingularValues, PanelsOfOddDepth) {
  // The Gram matrix is added up in panels of 64 rows or columns.
  for (const int64_t depth : {63, 64, 65, 127, 130}) {
    const std::vector<float> matrix = HashedMatrix(5, depth);
    const auto expected = JacobiSingularValues(matrix, 5, depth);
    EXPECT_NEAR(TopSingularValues({matrix, 5, depth}, 1).values[0], expected[0],
                1e-12);
    EXPECT_NEAR(TopSingularValues({matrix, depth, 5}, 1).values[0],
                JacobiSingularValues(matrix, depth, 5)[0], 1e-12);
  }
}

TEST(TopSingularValues, SpectraThatHurt) {
  struct Case {
    const char* name;
    std::vector<double> sigmas;
    std::vector<double> top;
  };
  const std::vector<Case> cases = {
      {"rank one", {3}, {3, 0, 0}},
      {"spike", {1000, 2, 1, 0.5}, {1000, 2, 1}},
      {"equal pair", {2, 2, 1}, {2, 2, 1}},
      {"four equal", {2, 2, 2, 2, 1}, {2, 2, 2}},
      {"close", {1, 0.9999, 0.9998, 0.9997}, {1, 0.9999, 0.9998}},
  };
  for (const int64_t side : {90, 540}) {
    for (const Case& c : cases) {
      SCOPED_TRACE(testing::Message() << c.name << ", side " << side);
      const int64_t cols = side + 7;
      const std::vector<float> matrix =
          MatrixWithSingularValues(side, cols, c.sigmas);
      const SingularValues got = TopSingularValues({matrix, side, cols}, 3);
      EXPECT_TRUE(got.converged);
      // Entries are rounded to float, which moves every value a little.
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_NEAR(got.values[i], c.top[i], 1e-6 * c.top[0]);
      }
    }
  }
}

TEST(TopSingularValues, OrthogonalMatrixHasOnlyOnes) {
  constexpr int64_t kSide = 600;
  std::vector<float> identity(kSide * kSide, 0.0F);
  for (size_t i = 0; i < kSide; ++i) identity[i * kSide + i] = 1;
  const auto got = TopSingularValues({identity, kSide, kSide}, 4);
  EXPECT_THAT(got.values, testing::Each(testing::DoubleNear(1, 1e-12)));
  EXPECT_EQ(got.values.size(), 4U);
}

TEST(TopSingularValues, ZeroAndEmptyMatrices) {
  const std::vector<float> zeros(600 * 600, 0.0F);
  EXPECT_EQ(TopSingularValues({zeros, 600, 600}, 2).values,
            (std::vector<double>{0, 0}));
  EXPECT_EQ(TopSingularValues({std::span(zeros).first(6), 2, 3}, 2).values,
            (std::vector<double>{0, 0}));
  EXPECT_TRUE(TopSingularValues({{}, 0, 0}, 3).values.empty());
  EXPECT_TRUE(TopSingularValues({{}, 0, 5}, 3).values.empty());
}

TEST(TopSingularValues, SameBitsEveryTime) {
  const std::vector<float> matrix = HashedMatrix(530, 520);
  EXPECT_EQ(TopSingularValues({matrix, 530, 520}, 3).values,
            TopSingularValues({matrix, 530, 520}, 3).values);
}

TEST(TopSingularValues, RefusesSizesThatDoNotFit) {
  const std::vector<float> six(6, 1.0F);
  EXPECT_THROW(TopSingularValues({six, 2, 2}, 1), Error);
  EXPECT_THROW(TopSingularValues({six, 2, 3}, 0), Error);
  EXPECT_THROW(TopSingularValues({six, 2, 3}, kMaxSingularValues + 1), Error);
}

TEST(LargestGramEigenvalues, AgreeWithAllEigenvaluesOnTallAndFat) {
  for (const auto& [rows, cols] : {std::pair{160, 400}, std::pair{400, 160}}) {
    const std::vector<float> matrix = HashedMatrix(rows, cols);
    const auto expected = JacobiSingularValues(matrix, rows, cols);
    const LanczosResult got = LargestGramEigenvalues({matrix, rows, cols}, 8);
    EXPECT_TRUE(got.converged);
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_NEAR(std::sqrt(got.eigenvalues[i]), expected[i],
                  1e-8 * expected[0]);
    }
  }
}

TEST(LargestGramEigenvalues, SmallestSideThatIsAllowed) {
  const std::vector<float> matrix =
      HashedMatrix(kMinLanczosSide, kMinLanczosSide);
  const auto expected =
      JacobiSingularValues(matrix, kMinLanczosSide, kMinLanczosSide);
  const auto got =
      LargestGramEigenvalues({matrix, kMinLanczosSide, kMinLanczosSide}, 1);
  EXPECT_NEAR(std::sqrt(got.eigenvalues[0]), expected[0], 1e-8);
}

}  // namespace
}  // namespace muonstore
