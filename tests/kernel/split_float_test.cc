#include "src/kernel/split_float.h"

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "src/tensor/float_bits.h"

namespace muonstore {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kCols = 37;
constexpr int64_t kLd = 40;

struct Halves {
  std::vector<BF16> upper = std::vector<BF16>(kRows * kLd, BF16{0x1234});
  std::vector<int16_t> lower = std::vector<int16_t>(kRows * kLd, 77);

  SplitBlock view() { return {upper.data(), lower.data(), kLd}; }
  float at(size_t i) const {
    return std::bit_cast<float>(
        static_cast<uint32_t>(int64_t{upper[i].bits} * 65536 + lower[i]));
  }
};

// Values of every magnitude that the iteration knows, zeros, halfway cases.
std::vector<float> Values() {
  std::mt19937_64 rng(3);
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (int64_t i = 0; i < kRows * kCols; ++i) {
    values.push_back(std::ldexp(normal(rng), -static_cast<int>(i % 50)));
  }
  values[3] = 0;
  values[4] = -0.0F;
  values[5] = std::bit_cast<float>(0x3F808000U);
  values[6] = std::bit_cast<float>(0xBF818000U);
  values[7] = std::bit_cast<float>(0x3FFFFFFFU);
  values[8] = std::bit_cast<float>(0x00000001U);
  values[9] = std::bit_cast<float>(0x0000FFFFU);
  return values;
}

template <typename Body>
void ForEach(const Body& body) {
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kCols; ++j) {
      body(static_cast<size_t>(i * kCols + j),
           static_cast<size_t>(i * kLd + j));
    }
  }
}

TEST(SplitFloat, LosesNothingAndRoundsToNearest) {
  const std::vector<float> values = Values();
  Halves halves;
  ScaleSplitInto({values.data(), kCols, kRows, kCols}, 1, halves.view());
  ForEach([&](size_t from, size_t to) {
    EXPECT_EQ(std::bit_cast<uint32_t>(halves.at(to)),
              std::bit_cast<uint32_t>(values[from]));
    const double rounded = FloatFromBF16(halves.upper[to].bits);
    const double nearest = FloatFromBF16(BF16FromFloat(values[from]));
    EXPECT_EQ(std::abs(rounded - values[from]),
              std::abs(nearest - values[from]));
  });
}

TEST(SplitFloat, ScalesInDouble) {
  std::vector<float> values = Values();
  for (float& value : values) value *= 0x1p-80F;
  Halves halves;
  const double scale = 0x1.23456789p100;
  ScaleSplitInto({values.data(), kCols, kRows, kCols}, scale, halves.view());
  ForEach([&](size_t from, size_t to) {
    EXPECT_EQ(halves.at(to), static_cast<float>(values[from] * scale));
  });
}

TEST(SplitFloat, AddsAsF32DoesAndWritesNothingElse) {
  const std::vector<float> values = Values();
  std::vector<float> product = Values();
  for (float& value : product) value = 0.7F - value;
  Halves halves;
  ScaleSplitInto({values.data(), kCols, kRows, kCols}, 1, halves.view());
  AddScaledSplit(halves.view(), {product.data(), kCols, kRows, kCols}, 3.4445F);
  ForEach([&](size_t from, size_t to) {
    EXPECT_EQ(halves.at(to), std::fma(3.4445F, values[from], product[from]));
  });
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = kCols; j < kLd; ++j) {
      EXPECT_EQ(halves.upper[static_cast<size_t>(i * kLd + j)].bits, 0x1234);
      EXPECT_EQ(halves.lower[static_cast<size_t>(i * kLd + j)], 77);
    }
  }
}

}  // namespace
}  // namespace muonstore
