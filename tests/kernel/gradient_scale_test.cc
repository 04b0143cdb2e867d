#include "src/kernel/gradient_scale.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace muonstore {
namespace {

using Limits = std::numeric_limits<float>;

// The same bits; one NaN is as good as another.
bool IsSame(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

TEST(GradientScale, ReciprocalsOfPowersOfTwoGiveTheBitsOfTheDivision) {
  std::mt19937 random(1);
  for (int exponent = -126; exponent <= 127; ++exponent) {
    const float divisor = std::ldexp(1.0F, exponent);
    ASSERT_TRUE(IsPowerOfTwo(divisor)) << exponent;
    const MultipliedGradient fast{1.0F / divisor, 0.7F};
    const DividedGradient slow{divisor, 0.7F};
    for (int i = 0; i < 1000; ++i) {
      // Every kind of number: tiny ones, infinities and NaNs, too.
      const auto value = std::bit_cast<float>(static_cast<uint32_t>(random()));
      ASSERT_TRUE(IsSame(fast(value), slow(value)))
          << value << " by 2^" << exponent;
    }
  }
}

TEST(GradientScale, OtherDivisorsDivide) {
  for (const float divisor :
       {3.0F, 0.1F, 1.5F, 0.0F, -0.0F, -2.0F, Limits::infinity(),
        Limits::quiet_NaN(), Limits::max(), Limits::denorm_min()}) {
    EXPECT_FALSE(IsPowerOfTwo(divisor)) << divisor;
  }
  WithGradientScale(3.0F, 0.5F, [](auto scale) {
    EXPECT_EQ(scale(1.0F), 1.0F / 3.0F * 0.5F);
  });
  WithGradientScale(4.0F, 0.5F,
                    [](auto scale) { EXPECT_EQ(scale(1.0F), 0.125F); });
}

}  // namespace
}  // namespace muonstore
