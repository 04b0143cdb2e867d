// The precision contract of docs/numerics.md: relative Frobenius error of each
// path against the formula in double.
#include <algorithm>
#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/kernel/matrices.h"

namespace muonstore {
namespace {

// Bounds are about four times what was measured, see docs/numerics.md.
struct Contract {
  double ordinary;  // Gaussian matrices of any size and scale.
  double hard;      // HardMatrices.
};

Contract ContractOf(const NewtonSchulzOptions& options) {
  const bool jordan = options.coefficients.name == "jordan5";
  if (options.precision == NewtonSchulzPrecision::kBF16) {
    return jordan ? Contract{.ordinary = 0.06, .hard = 0.09}
                  : Contract{.ordinary = 0.1, .hard = 0.18};
  }
  if (options.form == NewtonSchulzForm::kGram) {
    return jordan ? Contract{.ordinary = 4e-5, .hard = 4e-3}
                  : Contract{.ordinary = 1e-4, .hard = 1.4e-2};
  }
  return jordan ? Contract{.ordinary = 1e-5, .hard = 3e-4}
                : Contract{.ordinary = 3e-5, .hard = 1e-3};
}

double ErrorOf(const FloatMatrix& matrix, const NewtonSchulzOptions& options,
               const oracle::Matrix& expected) {
  return oracle::RelativeError(Widen(Orthogonalized(matrix, options, 1)),
                               expected);
}

// Every path's error is within the member of its contract. The errors are also
// kept in the test's XML report.
void ExpectContract(const FloatMatrix& matrix, double Contract::*bound) {
  std::map<std::string, oracle::Matrix> expected;
  for (const NewtonSchulzOptions& options : AllPaths()) {
    const std::string& set = options.coefficients.name;
    if (!expected.contains(set)) {
      expected[set] = OracleNewtonSchulz(matrix, options);
    }
    const double error = ErrorOf(matrix, options, expected[set]);
    const std::string what = Describe(options) + ", " + matrix.name + " " +
                             std::to_string(matrix.rows) + " x " +
                             std::to_string(matrix.cols);
    EXPECT_LE(error, ContractOf(options).*bound) << what;
    std::ostringstream text;
    text << error;
    testing::Test::RecordProperty(what, text.str());
  }
}

TEST(NewtonSchulzPrecision, HoldsForOrdinaryMatrices) {
  for (const auto& [rows, cols] :
       std::vector<std::pair<int64_t, int64_t>>{{16, 16},
                                                {24, 72},
                                                {72, 24},
                                                {1, 40},
                                                {40, 1},
                                                {1, 1},
                                                {130, 65},
                                                {200, 200},
                                                {257, 260},
                                                {270, 310}}) {
    ExpectContract(Gaussian(rows, cols, 5), &Contract::ordinary);
  }
}

TEST(NewtonSchulzPrecision, HoldsForHardMatrices) {
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
           {24, 56}, {56, 24}, {40, 40}, {64, 96}}) {
    for (const FloatMatrix& matrix : HardMatrices(rows, cols)) {
      ExpectContract(matrix, &Contract::hard);
    }
  }
}

// Large enough for several tiles.
TEST(NewtonSchulzPrecision, HoldsForHardMatricesOfSeveralTiles) {
  FloatMatrix ones = Gaussian(260, 272, 1);
  ones.name = "ones";
  std::fill(ones.values.begin(), ones.values.end(), 1.0F);
  ExpectContract(ones, &Contract::hard);
  FloatMatrix rank3 = WithSingularValues(260, 272, {1, 1, 1}, 14);
  rank3.name = "rank 3";
  ExpectContract(rank3, &Contract::hard);
}

TEST(NewtonSchulzPrecision, HoldsAtEveryScale) {
  for (const double scale : {1e-30, 1e-12, 1e-6, 1e4, 1e18, 1e30, 1e37}) {
    ExpectContract(Scaled(Gaussian(16, 32, 6), scale), &Contract::ordinary);
    ExpectContract(Scaled(Gaussian(56, 50, 6), scale), &Contract::ordinary);
  }
}

// Subnormal floats have few bits, but the oracle gets the same ones.
TEST(NewtonSchulzPrecision, HoldsForSubnormals) {
  ExpectContract(Scaled(Gaussian(16, 32, 6), 1e-42), &Contract::ordinary);
}

TEST(NewtonSchulzPrecision, ScaleFreeIgnoresPowersOfTwoBitForBit) {
  for (const NewtonSchulzOptions& options : AllPaths()) {
    const FloatMatrix matrix = Gaussian(24, 40, 12);
    const FloatMatrix expected = Orthogonalized(matrix, options, 1);
    for (const double scale : {0x1p-90, 0x1p-20, 0x1p3, 0x1p100}) {
      EXPECT_EQ(Orthogonalized(Scaled(matrix, scale), options, 1).values,
                expected.values)
          << Describe(options) << " times " << scale;
    }
  }
}

TEST(NewtonSchulzPrecision, CompatShrinksTinyMatrices) {
  NewtonSchulzOptions options;
  options.normalization = NewtonSchulzNormalization::kCompat;
  for (const double scale : {1e-6, 1e-9, 1e-12}) {
    const FloatMatrix matrix = Scaled(Gaussian(16, 16, 13), scale);
    EXPECT_LE(ErrorOf(matrix, options, OracleNewtonSchulz(matrix, options)),
              2e-5)
        << scale;
  }
  const FloatMatrix tiny = Scaled(Gaussian(16, 16, 13), 1e-12);
  EXPECT_LE(oracle::Norm(Widen(Orthogonalized(tiny, options, 1))), 0.1);
}

// A flipped sign of the dominant direction would be an ascent step.
TEST(NewtonSchulzPrecision, NeverFlipsTheDominantDirection) {
  for (const NewtonSchulzOptions& options : AllPaths()) {
    for (const FloatMatrix& matrix : HardMatrices(32, 64)) {
      const FloatMatrix result = Orthogonalized(matrix, options, 1);
      double dot = 0;
      for (size_t i = 0; i < matrix.values.size(); ++i) {
        dot += static_cast<double>(matrix.values[i]) * result.values[i];
      }
      EXPECT_GT(dot, 0) << Describe(options) << " " << matrix.name;
    }
  }
}

}  // namespace
}  // namespace muonstore
