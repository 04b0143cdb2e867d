#include "src/kernel/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/oracle/sum_oracle.h"

namespace muonstore {
namespace {

double OracleSum(const std::vector<float>& values, float factor = 1.0F) {
  std::vector<double> squares;
  for (const float value : values) {
    const double scaled = value * factor;
    squares.push_back(scaled * scaled);
  }
  return oracle::ExactlyRoundedSum(squares);
}

ExactSum SumOf(const std::vector<float>& values) {
  ExactSum sum;
  sum.AddSquares(values);
  return sum;
}

// Magnitudes from the smallest subnormal to the largest float.
std::vector<float> WideValues(size_t count, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<float> values;
  while (values.size() < count) {
    const float value =
        std::bit_cast<float>(static_cast<uint32_t>(rng() >> 32));
    if (std::isfinite(value)) values.push_back(value);
  }
  return values;
}

std::vector<float> NormalValues(size_t count, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(rng);
  return values;
}

TEST(ExactSum, IsRoundedOnceFromTheExactSum) {
  for (const size_t count : {0, 1, 2, 3, 31, 1023, 1024, 1025, 5000}) {
    EXPECT_EQ(SumOf(NormalValues(count, count)).Round(),
              OracleSum(NormalValues(count, count)));
    EXPECT_EQ(SumOf(WideValues(count, count)).Round(),
              OracleSum(WideValues(count, count)));
  }
}

TEST(ExactSum, HoldsTheExtremes) {
  const float least = std::numeric_limits<float>::denorm_min();
  const float most = std::numeric_limits<float>::max();
  for (const std::vector<float>& values :
       std::vector<std::vector<float>>{{least},
                                       {most},
                                       {least, most},
                                       {0.0F, -0.0F},
                                       std::vector<float>(3000, most),
                                       std::vector<float>(3000, least)}) {
    EXPECT_EQ(SumOf(values).Round(), OracleSum(values));
  }
}

// 1 + 2^-53 is a tie; what lies far below decides it.
TEST(ExactSum, RoundsTiesByWhatLiesBelow) {
  const std::vector<float> tie = {1.0F, 0x1p-27F, 0x1p-27F};  // 1 + 2^-53.
  EXPECT_EQ(SumOf(tie).Round(), 1.0);
  std::vector<float> above = tie;
  above.push_back(0x1p-149F);
  EXPECT_EQ(SumOf(above).Round(), 1.0 + 0x1p-52);
  std::vector<float> odd = tie;
  for (int i = 0; i < 4; ++i) odd.push_back(0x1p-27F);  // 1 + 3 * 2^-53.
  EXPECT_EQ(SumOf(odd).Round(), 1.0 + 0x1p-51);
}

TEST(ExactSum, DoesNotDependOnOrderOrCut) {
  std::vector<float> values = WideValues(4000, 5);
  const std::vector<float> normal = NormalValues(4000, 6);
  values.insert(values.end(), normal.begin(), normal.end());
  const ExactSum::Words expected = SumOf(values).words();
  std::mt19937_64 rng(7);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(values.begin(), values.end(), rng);
    ExactSum merged;
    for (size_t begin = 0; begin < values.size();) {
      const size_t count =
          std::min<size_t>(values.size() - begin, rng() % 3000);
      ExactSum part;
      part.AddSquares(std::span(values).subspan(begin, count));
      merged.Merge(part);
      begin += count;
    }
    EXPECT_EQ(merged.words(), expected);
  }
}

// What an all-reduce over ranks does.
TEST(ExactSum, WordsAddUpAsIntegers) {
  ExactSum::Words total = {};
  std::vector<float> all;
  for (uint64_t rank = 0; rank < 7; ++rank) {
    const std::vector<float> values = WideValues(500, rank);
    all.insert(all.end(), values.begin(), values.end());
    const ExactSum::Words words = SumOf(values).words();
    for (size_t i = 0; i < words.size(); ++i) total[i] += words[i];
  }
  const ExactSum sum = ExactSum::FromWords(total);
  EXPECT_EQ(sum.Round(), OracleSum(all));
  EXPECT_EQ(sum.words(), SumOf(all).words());
}

TEST(ExactSum, CountsWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = NormalValues(3000, 9);
  const double finite_sum = OracleSum(values);
  ExactSum sum = SumOf(values);
  EXPECT_TRUE(sum.finite());
  sum.AddSquares(
      std::vector<float>{kInfinity, 0.0F, -kInfinity, std::nanf("")});
  EXPECT_FALSE(sum.finite());
  EXPECT_EQ(sum.num_nonfinite(), 3);
  EXPECT_EQ(sum.Round(), kInfinity);
  ExactSum::Words words = sum.words();
  EXPECT_FALSE(ExactSum::FromWords(words).finite());
  // The rest of the sum is kept.
  words[0] = 0;
  EXPECT_EQ(ExactSum::FromWords(words).Round(), finite_sum);
}

TEST(ExactSum, AFactorIsRoundedIntoEachValue) {
  const std::vector<float> values = NormalValues(2500, 10);
  for (const float factor : {0.3F, 1.0F / 3.0F, 4096.0F, 0.0F}) {
    ExactSum sum;
    sum.AddSquares(values, factor);
    EXPECT_EQ(sum.Round(), OracleSum(values, factor));
  }
  ExactSum overflown;
  overflown.AddSquares(std::vector<float>{1e30F, 2.0F}, 1e20F);
  EXPECT_EQ(overflown.num_nonfinite(), 1);
}

// Equal norms for any loss scale.
TEST(ExactSum, PowersOfTwoScaleExactly) {
  std::vector<float> values = NormalValues(2000, 11);
  const double sum = SumOf(values).Round();
  for (float& value : values) value *= 0x1p15F;
  EXPECT_EQ(SumOf(values).Round(), sum * 0x1p30);
}

TEST(ExactSum, ForeignWordsAreRefused) {
  ExactSum::Words words = {};
  words[0] = -1;
  EXPECT_THROW(ExactSum::FromWords(words), Error);
  words[0] = 0;
  words.back() = -1;
  EXPECT_THROW(ExactSum::FromWords(words), Error);
}

}  // namespace
}  // namespace muonstore
