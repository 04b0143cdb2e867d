#include "src/kernel/momentum.h"

#include <cmath>

#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/kernel/pass_data.h"

namespace muonstore {
namespace {

constexpr size_t kMomentumCount = 300;

std::vector<MomentumParams> AllMomentumParams() {
  std::vector<MomentumParams> all;
  for (const auto convention :
       {MomentumConvention::kLerp, MomentumConvention::kAccumulate}) {
    for (const bool nesterov : {false, true}) {
      for (const double mu : {0.95, 0.9, 0.3, 0.0}) {
        for (const float divisor : {1.0F, 3.0F, 4096.0F}) {
          for (const float clip : {1.0F, 0.37F}) {
            all.push_back({.convention = convention,
                           .mu = mu,
                           .nesterov = nesterov,
                           .divisor = divisor,
                           .clip_factor = clip});
          }
        }
      }
    }
  }
  return all;
}

struct Oracle {
  double momentum;
  double update;
  double magnitude;  // What roundings are relative to.
};

Oracle Expected(const MomentumParams& params, double accumulated,
                double momentum) {
  const double g = accumulated / params.divisor * params.clip_factor;
  const double mu = params.mu;
  const bool lerp = params.convention == MomentumConvention::kLerp;
  const double weight = lerp ? 1 - mu : 1;
  Oracle out{};
  out.momentum = mu * momentum + weight * g;
  out.update = params.nesterov ? weight * g + mu * out.momentum : accumulated;
  out.magnitude = std::abs(momentum) + std::abs(g);
  return out;
}

// Nine roundings at most: of two constants, of g twice, of the difference and
// the sum of each blend, and of the new momentum within the second.
TEST(Momentum, FollowsTheFormulasInDouble) {
  for (const MomentumParams& params : AllMomentumParams()) {
    const std::vector<float> accumulated =
        NormalFloats(kMomentumCount, 1, params.divisor);
    const std::vector<float> momentum = NormalFloats(kMomentumCount, 2);
    std::vector<float> update = accumulated;
    std::vector<float> updated = momentum;
    UpdateMomentum(params, update, updated);
    for (size_t i = 0; i < kMomentumCount; ++i) {
      const Oracle oracle = Expected(params, accumulated[i], momentum[i]);
      const double tolerance = 9 * kF32Eps * oracle.magnitude;
      ASSERT_NEAR(updated[i], oracle.momentum, tolerance);
      ASSERT_NEAR(update[i], oracle.update, tolerance);
    }
  }
}

TEST(Momentum, TheNextGenerationMayLieElsewhere) {
  for (const MomentumParams& params : AllMomentumParams()) {
    const std::vector<float> momentum = NormalFloats(kMomentumCount, 4);
    std::vector<float> update = NormalFloats(kMomentumCount, 3);
    std::vector<float> update_in_place = update;
    std::vector<float> in_place = momentum;
    std::vector<float> next(kMomentumCount, -7.0F);
    UpdateMomentum(params, update_in_place, in_place);
    UpdateMomentum(params, update, {momentum, next});
    ASSERT_TRUE(SameBits(next, in_place));
    ASSERT_TRUE(SameBits(update, update_in_place));
    ASSERT_TRUE(SameBits(momentum, NormalFloats(kMomentumCount, 4)));
  }
}

TEST(Momentum, BitsDoNotDependOnTheCut) {
  for (const MomentumParams& params : AllMomentumParams()) {
    const std::vector<float> accumulated = NormalFloats(kMomentumCount, 3);
    const std::vector<float> momentum = NormalFloats(kMomentumCount, 4);
    std::vector<float> whole_update = accumulated;
    std::vector<float> whole_momentum = momentum;
    UpdateMomentum(params, whole_update, whole_momentum);
    for (const auto& [begin, count] : ManyCuts(kMomentumCount)) {
      std::vector<float> update = accumulated;
      std::vector<float> updated = momentum;
      UpdateMomentum(params, std::span(update).subspan(begin, count),
                     std::span(updated).subspan(begin, count));
      ASSERT_TRUE(SameBits(std::span(update).subspan(begin, count),
                           std::span(whole_update).subspan(begin, count)));
      ASSERT_TRUE(SameBits(std::span(updated).subspan(begin, count),
                           std::span(whole_momentum).subspan(begin, count)));
      // Nothing beside the range is touched.
      ASSERT_TRUE(SameBits(std::span(updated).first(begin),
                           std::span(momentum).first(begin)));
      ASSERT_TRUE(SameBits(std::span(updated).subspan(begin + count),
                           std::span(momentum).subspan(begin + count)));
    }
  }
}

// The rounding order that the header promises, one element at a time. The
// library's std::fma is one rounding, so this is torch's lerp bit for bit.
TEST(Momentum, LerpRoundsAsTorchDoes) {
  const MomentumParams params = {.mu = 0.95};
  std::vector<float> update = NormalFloats(kMomentumCount, 5);
  std::vector<float> momentum = NormalFloats(kMomentumCount, 6);
  const std::vector<float> g = update;
  const std::vector<float> m = momentum;
  UpdateMomentum(params, update, momentum);
  const auto small = static_cast<float>(1 - 0.95);
  const float large = static_cast<float>(0.95) - 1.0F;
  for (size_t i = 0; i < kMomentumCount; ++i) {
    const float blended = std::fma(small, g[i] - m[i], m[i]);
    ASSERT_EQ(momentum[i], blended);
    ASSERT_EQ(update[i], std::fma(large, blended - g[i], blended));
  }
}

// Values from torch 2.15: m.lerp_(g, 0.05), then g.lerp(m, 0.95).
TEST(Momentum, LerpEqualsValuesOfTorch) {
  std::vector<float> gradient = {
      -0x1.39ef5e0000000p-4F, 0x1.7084c80000000p-2F, -0x1.9064820000000p-1F,
      -0x1.a6d38c0000000p+0F, 0x1.0bc8260000000p+0F, 0x1.0b5c180000000p-1F,
      -0x1.55a00a0000000p-3F, 0x1.b2731a0000000p-5F, 0x1.9e51560000000p-2F,
      0x1.38fc440000000p-1F,  0x1.8551e40000000p-1F, -0x1.31fae00000000p+0F,
      0x1.feefb00000000p-1F,  0x1.d633660000000p-2F, 0x1.37dbdc0000000p+1F,
      -0x1.2ca9c40000000p-3F, 0x1.f0c1ba0000000p-2F, 0x1.a451ec0000000p-3F,
      0x1.5a8cec0000000p-2F};
  std::vector<float> momentum = {
      0x1.651dc40000000p-2F,  0x1.2fa6e00000000p-5F,  -0x1.153d7c0000000p-4F,
      0x1.44b2600000000p+0F,  -0x1.fc92ea0000000p-3F, 0x1.3d49980000000p-1F,
      0x1.e8e1f60000000p+0F,  -0x1.93fbfc0000000p+0F, 0x1.03a68e0000000p-1F,
      0x1.9fc4ee0000000p-3F,  -0x1.a2a8680000000p-3F, 0x1.5abbd40000000p+0F,
      0x1.60b4c60000000p+0F,  0x1.3f68a20000000p-1F,  0x1.24c3b60000000p+0F,
      -0x1.f167a20000000p-4F, 0x1.40b7640000000p-1F,  -0x1.f43f700000000p+0F,
      -0x1.38bce80000000p+0F};
  const std::vector<float> expected_momentum = {
      0x1.4f56160000000p-2F,  0x1.b3e0720000000p-5F,  -0x1.a789040000000p-4F,
      0x1.1f52140000000p+0F,  -0x1.78084e0000000p-3F, 0x1.3aca840000000p-1F,
      0x1.ce4daa0000000p+0F,  -0x1.7f1b340000000p+0F, 0x1.0106aa0000000p-1F,
      0x1.c993f00000000p-3F,  -0x1.3fdc680000000p-3F, 0x1.3a19180000000p+0F,
      0x1.5bd8200000000p+0F,  0x1.3b317c0000000p-1F,  0x1.354fea0000000p+0F,
      -0x1.f699d40000000p-4F, 0x1.3d19760000000p-1F,  -0x1.d89bc00000000p+0F,
      -0x1.24c4e60000000p+0F};
  const std::vector<float> expected_update = {
      0x1.3aa5300000000p-2F,  0x1.18bec60000000p-4F,  -0x1.1941fe0000000p-3F,
      0x1.f7a0640000000p-1F,  -0x1.f43c720000000p-4F, 0x1.386b640000000p-1F,
      0x1.b50d940000000p+0F,  -0x1.6b45aa0000000p+0F, 0x1.fd10ba0000000p-2F,
      0x1.f14bcc0000000p-3F,  -0x1.c402020000000p-4F, 0x1.1b18180000000p+0F,
      0x1.5739b60000000p+0F,  0x1.37304c0000000p-1F,  0x1.45084e0000000p+0F,
      -0x1.fb89840000000p-4F, 0x1.39a9d40000000p-1F,  -0x1.be59da0000000p+0F,
      -0x1.11cc7e0000000p+0F};
  UpdateMomentum({.mu = 0.95}, gradient, momentum);
  EXPECT_EQ(momentum, expected_momentum);
  EXPECT_EQ(gradient, expected_update);
}

// Gradients times a loss scale, divided by it, give the same bits.
TEST(Momentum, ALossScaleOfAPowerOfTwoChangesNothing) {
  for (MomentumParams params : AllMomentumParams()) {
    params.divisor = 3;
    std::vector<float> update = NormalFloats(kMomentumCount, 7);
    std::vector<float> scaled = update;
    for (float& value : scaled) value *= 1024;
    std::vector<float> momentum = NormalFloats(kMomentumCount, 8);
    std::vector<float> scaled_momentum = momentum;
    UpdateMomentum(params, update, momentum);
    params.divisor *= 1024;
    UpdateMomentum(params, scaled, scaled_momentum);
    EXPECT_TRUE(SameBits(scaled_momentum, momentum));
    if (params.nesterov) {
      EXPECT_TRUE(SameBits(scaled, update));
    }
  }
}

TEST(Momentum, SizesThatDifferAreRefused) {
  std::vector<float> accumulated(5);
  std::vector<float> momentum(4);
  EXPECT_THROW(UpdateMomentum({}, accumulated, momentum), Error);
}

}  // namespace
}  // namespace muonstore
