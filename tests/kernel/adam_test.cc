#include "src/kernel/adam.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/kernel/pass_data.h"

namespace muonstore {
namespace {

constexpr size_t kAdamCount = 300;

struct State {
  std::vector<float> master;
  std::vector<float> exp_avg;
  std::vector<float> exp_avg_sq;

  AdamState view(size_t begin, size_t count) {
    return {std::span(master).subspan(begin, count),
            std::span(exp_avg).subspan(begin, count),
            std::span(exp_avg_sq).subspan(begin, count)};
  }
};

State SomeState(uint64_t seed) {
  State state{NormalFloats(kAdamCount, seed),
              NormalFloats(kAdamCount, seed + 1, 0.1F),
              NormalFloats(kAdamCount, seed + 2, 0.1F)};
  for (float& value : state.exp_avg_sq) value *= value;
  return state;
}

std::vector<AdamParams> AllAdamParams() {
  std::vector<AdamParams> all;
  for (const auto order : {AdamOrder::kTorch, AdamOrder::kDeepSpeed}) {
    for (const bool decoupled : {true, false}) {
      for (const double weight_decay : {0.0, 0.1}) {
        for (const int64_t step : {1, 2, 1000}) {
          all.push_back({.lr = 3e-3,
                         .beta1 = 0.9,
                         .beta2 = 0.95,
                         .eps = 1e-8,
                         .weight_decay = weight_decay,
                         .step = step,
                         .order = order,
                         .decoupled_decay = decoupled,
                         .bias_correction = step != 2,
                         // 1000: by the reciprocal.
                         .divisor = step == 1000 ? 4.0F : 3.0F,
                         .clip_factor = 0.7F});
        }
      }
    }
  }
  return all;
}

// One element in double.
struct Element {
  double master;
  double exp_avg;
  double exp_avg_sq;
  double step_length;  // |change by the gradient|, for the tolerance.
};

Element Expected(const AdamParams& p, double accumulated, Element e) {
  double g = accumulated / p.divisor * p.clip_factor;
  if (!p.decoupled_decay) g += p.weight_decay * e.master;
  if (p.decoupled_decay) e.master *= 1 - p.lr * p.weight_decay;
  e.exp_avg = p.beta1 * e.exp_avg + (1 - p.beta1) * g;
  e.exp_avg_sq = p.beta2 * e.exp_avg_sq + (1 - p.beta2) * g * g;
  const auto t = static_cast<double>(p.step);
  const double c1 = p.bias_correction ? 1 - std::pow(p.beta1, t) : 1;
  const double c2 = p.bias_correction ? 1 - std::pow(p.beta2, t) : 1;
  const double change =
      p.lr / c1 * e.exp_avg / (std::sqrt(e.exp_avg_sq / c2) + p.eps);
  e.master -= change;
  e.step_length = std::abs(change);
  return e;
}

// exp_avg may cancel: its roundings are relative to its terms. The constants of
// DeepSpeed's order are 1 - pow in float, which costs c1 and c2 up to 2^-24 /
// (1 - beta) more.
TEST(Adam, BothOrdersFollowTheFormulaInDouble) {
  for (const AdamParams& params : AllAdamParams()) {
    const State before = SomeState(10);
    State after = before;
    const std::vector<float> accumulated = NormalFloats(kAdamCount, 13);
    AdamStep(params, accumulated, after.view(0, kAdamCount), {});
    for (size_t i = 0; i < kAdamCount; ++i) {
      const Element e = Expected(
          params, accumulated[i],
          {before.master[i], before.exp_avg[i], before.exp_avg_sq[i], 0});
      const double terms = std::abs(before.exp_avg[i]) +
                           std::abs(accumulated[i]) +
                           std::abs(before.master[i]);
      ASSERT_NEAR(after.exp_avg[i], e.exp_avg, 8 * kF32Eps * terms);
      ASSERT_NEAR(after.exp_avg_sq[i], e.exp_avg_sq,
                  20 * kF32Eps * e.exp_avg_sq + 1e-30);
      const double scale = 3e-3 * 10 * terms / (std::sqrt(e.exp_avg_sq) + 1e-8);
      ASSERT_NEAR(after.master[i], e.master,
                  3 * kF32Eps * std::abs(e.master) +
                      60 * kF32Eps * (e.step_length + scale));
    }
  }
}

TEST(Adam, TheNextGenerationMayLieElsewhere) {
  const std::vector<float> accumulated = NormalFloats(kAdamCount, 14);
  for (const AdamParams& params : AllAdamParams()) {
    State in_place = SomeState(15);
    State from = SomeState(15);
    State to = SomeState(16);
    AdamStep(params, accumulated, in_place.view(0, kAdamCount), {});
    AdamStep(params, accumulated,
             {.master = {from.master, to.master},
              .exp_avg = {from.exp_avg, to.exp_avg},
              .exp_avg_sq = {from.exp_avg_sq, to.exp_avg_sq}},
             {});
    ASSERT_TRUE(SameBits(to.master, in_place.master));
    ASSERT_TRUE(SameBits(to.exp_avg, in_place.exp_avg));
    ASSERT_TRUE(SameBits(to.exp_avg_sq, in_place.exp_avg_sq));
    ASSERT_TRUE(SameBits(from.master, SomeState(15).master));
    ASSERT_TRUE(SameBits(from.exp_avg, SomeState(15).exp_avg));
    ASSERT_TRUE(SameBits(from.exp_avg_sq, SomeState(15).exp_avg_sq));
  }
}

TEST(Adam, BitsDoNotDependOnTheCut) {
  const std::vector<float> accumulated = NormalFloats(kAdamCount, 20);
  for (const AdamParams& params : AllAdamParams()) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      State whole = SomeState(21);
      WeightBuffer whole_weights(dtype, kAdamCount);
      AdamStep(params, accumulated, whole.view(0, kAdamCount),
               whole_weights.view(0, kAdamCount));
      for (size_t begin = 0; begin < 20; ++begin) {
        const size_t count = 1 + (begin * 37) % (kAdamCount - 20);
        State part = SomeState(21);
        WeightBuffer weights(dtype, count);
        AdamStep(params, std::span(accumulated).subspan(begin, count),
                 part.view(begin, count), weights.view(0, count));
        const AdamState found = part.view(begin, count);
        const AdamState expected = whole.view(begin, count);
        ASSERT_TRUE(SameBits(found.master.in, expected.master.in));
        ASSERT_TRUE(SameBits(found.exp_avg.in, expected.exp_avg.in));
        ASSERT_TRUE(SameBits(found.exp_avg_sq.in, expected.exp_avg_sq.in));
        const ComputeWeights rounded = whole_weights.view(begin, count);
        ASSERT_TRUE(std::equal(weights.bytes.begin(), weights.bytes.end(),
                               rounded.bytes.begin()));
      }
    }
  }
}

TEST(Adam, ComputeWeightsAreTheRoundedMaster) {
  const std::vector<float> accumulated = NormalFloats(kAdamCount, 30);
  for (const AdamParams& params : AllAdamParams()) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      State state = SomeState(31);
      WeightBuffer weights(dtype, kAdamCount);
      AdamStep(params, accumulated, state.view(0, kAdamCount),
               weights.view(0, kAdamCount));
      std::vector<std::byte> expected(weights.bytes.size());
      ConvertFromF32(state.master, dtype, expected);
      ASSERT_EQ(weights.bytes, expected);
    }
  }
}

// 100 steps of torch.optim.AdamW (torch 2.15, float32, foreach=False) on one
// element with gradient sin(t): the last state.
TEST(Adam, FollowsTorchForAHundredSteps) {
  std::vector<float> master = {0.75F};
  std::vector<float> exp_avg = {0.0F};
  std::vector<float> exp_avg_sq = {0.0F};
  constexpr float expected_master = 0x1.49b86c0000000p-1F;
  constexpr float expected_exp_avg = -0x1.bea1960000000p-4F;
  constexpr float expected_exp_avg_sq = 0x1.87f9ce0000000p-5F;
  for (int64_t step = 1; step <= 100; ++step) {
    const std::vector<float> gradient(
        1, static_cast<float>(std::sin(static_cast<double>(step))));
    AdamStep({.lr = 1e-2,
              .beta1 = 0.9,
              .beta2 = 0.999,
              .eps = 1e-8,
              .weight_decay = 0.1,
              .step = step},
             gradient, {master, exp_avg, exp_avg_sq}, {});
  }
  EXPECT_NEAR(master[0], expected_master, 5e-7);
  EXPECT_NEAR(exp_avg[0], expected_exp_avg, 2e-7);
  EXPECT_NEAR(exp_avg_sq[0], expected_exp_avg_sq, 2e-8);
}

TEST(Adam, BadCallsAreRefused) {
  State state = SomeState(40);
  const std::vector<float> accumulated(kAdamCount);
  EXPECT_THROW(
      AdamStep({.step = 0}, accumulated, state.view(0, kAdamCount), {}), Error);
  const AdamState good = state.view(0, kAdamCount);
  const auto shorter = std::span<float>(state.master).first(kAdamCount - 1);
  EXPECT_THROW(
      AdamStep({}, accumulated, {shorter, good.exp_avg, good.exp_avg_sq}, {}),
      Error);
  EXPECT_THROW(
      AdamStep({}, accumulated, {good.master, shorter, good.exp_avg_sq}, {}),
      Error);
  EXPECT_THROW(
      AdamStep({}, accumulated, {good.master, good.exp_avg, shorter}, {}),
      Error);
  std::vector<std::byte> bytes(kAdamCount);
  EXPECT_THROW(AdamStep({}, accumulated, good, {DType::kBF16, bytes}), Error);
}

}  // namespace
}  // namespace muonstore
