#include "src/inspect/symmetric_eigen.h"

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/inspect/matrices.h"

namespace muonstore {
namespace {

std::vector<double> SymmetricMatrix(int64_t n, double scale) {
  const std::vector<float> raw = testutil::HashedMatrix(n, n);
  std::vector<double> out(raw.size());
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const auto a = static_cast<size_t>(i * n + j);
      const auto b = static_cast<size_t>(j * n + i);
      out[a] =
          scale * (static_cast<double>(raw[a]) + static_cast<double>(raw[b]));
    }
  }
  return out;
}

// |A v - lambda v| and the distance of the vectors from orthonormal.
void CheckDecomposition(const std::vector<double>& a, int64_t size,
                        const SymmetricEigen& eigen, double scale) {
  const auto n = static_cast<size_t>(size);
  ASSERT_EQ(eigen.values.size(), n);
  ASSERT_EQ(eigen.vectors.size(), n * n);
  for (size_t k = 0; k < n; ++k) {
    const double* v = eigen.vectors.data() + k * n;
    for (size_t i = 0; i < n; ++i) {
      double product = 0;
      for (size_t j = 0; j < n; ++j) product += a[i * n + j] * v[j];
      EXPECT_NEAR(product / scale, eigen.values[k] / scale * v[i], 1e-13);
    }
    for (size_t other = 0; other <= k; ++other) {
      const double* w = eigen.vectors.data() + other * n;
      EXPECT_NEAR(std::inner_product(v, v + n, w, 0.0), other == k ? 1 : 0,
                  1e-13);
    }
    if (k > 0) {
      EXPECT_GE(eigen.values[k - 1], eigen.values[k]);
    }
  }
}

TEST(EigenDecompose, SatisfiesTheDefinitionAtAnySizeAndScale) {
  for (const int64_t n : {1, 2, 3, 4, 7, 40}) {
    for (const double scale : {1.0, 1e200, 1e-200}) {
      SCOPED_TRACE(testing::Message() << n << " x " << scale);
      const std::vector<double> a = SymmetricMatrix(n, scale);
      CheckDecomposition(
          a, n, EigenDecompose(a, n, EigenParts::kValuesAndVectors), scale);
    }
  }
}

TEST(EigenDecompose, ValuesAloneAreTheSame) {
  const std::vector<double> a = SymmetricMatrix(33, 1);
  const auto values = EigenDecompose(a, 33, EigenParts::kValues);
  EXPECT_TRUE(values.vectors.empty());
  EXPECT_EQ(values.values,
            EigenDecompose(a, 33, EigenParts::kValuesAndVectors).values);
}

TEST(EigenDecompose, KnownValues) {
  // Second differences: 2 - 2 cos(pi k / (n + 1)).
  constexpr int64_t kSize = 20;
  std::vector<double> a(kSize * kSize, 0.0);
  for (size_t i = 0; i < kSize; ++i) {
    a[i * kSize + i] = 2;
    if (i + 1 < kSize) a[i * kSize + i + 1] = a[(i + 1) * kSize + i] = -1;
  }
  const auto eigen = EigenDecompose(a, kSize, EigenParts::kValues);
  for (int k = 0; k < kSize; ++k) {
    EXPECT_NEAR(eigen.values[static_cast<size_t>(k)],
                2 - 2 * std::cos(M_PI * (kSize - k) / (kSize + 1)), 1e-14);
  }
}

TEST(EigenDecompose, ZeroDiagonalAndRepeatedValues) {
  const auto swap = EigenDecompose({0, 1, 1, 0}, 2, EigenParts::kValues);
  EXPECT_NEAR(swap.values[0], 1, 1e-15);
  EXPECT_NEAR(swap.values[1], -1, 1e-15);
  EXPECT_EQ(EigenDecompose(std::vector<double>(9, 0.0), 3, EigenParts::kValues)
                .values,
            (std::vector<double>{0, 0, 0}));
  const auto ones =
      EigenDecompose(std::vector<double>(64, 1.0), 8, EigenParts::kValues);
  EXPECT_NEAR(ones.values[0], 8, 1e-14);
  EXPECT_NEAR(ones.values[1], 0, 1e-14);
  EXPECT_NEAR(ones.values[7], 0, 1e-14);
}

TEST(EigenDecompose, AConstantMatrixHasOneEigenvalue) {
  // Rounding errors of rounding errors once overflowed the reflectors.
  for (const int64_t n : {2, 24, 72, 100, 300}) {
    const double value = -0.0153;
    const std::vector<double> a(static_cast<size_t>(n * n), value * value * 7);
    for (const auto parts :
         {EigenParts::kValues, EigenParts::kValuesAndVectors}) {
      const SymmetricEigen eigen = EigenDecompose(a, n, parts);
      EXPECT_NEAR(eigen.values[0] / (a[0] * static_cast<double>(n)), 1, 1e-13);
      EXPECT_LT(std::abs(eigen.values[1]), 1e-13 * eigen.values[0]);
    }
  }
}

TEST(EigenDecompose, EmptyMatrixAndWrongSize) {
  EXPECT_TRUE(EigenDecompose({}, 0, EigenParts::kValues).values.empty());
  EXPECT_THROW(EigenDecompose({1, 2}, 2, EigenParts::kValues), Error);
}

}  // namespace
}  // namespace muonstore
