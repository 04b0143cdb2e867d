#include "src/kernel/muon_update.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "muonstore/update_rule.h"
#include "tests/kernel/pass_data.h"

namespace muonstore {
namespace {

constexpr size_t kUpdateCount = 300;
constexpr DType kWeightTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

std::vector<MuonUpdateParams> AllUpdateParams() {
  return {{.lr = 0.02, .weight_decay = 0.1, .scale = 1},
          {.lr = 0.02, .weight_decay = 0, .scale = std::sqrt(3.0)},
          {.lr = 1e-3, .weight_decay = 0.01, .scale = 0.2 * std::sqrt(768.0)},
          {.lr = 0, .weight_decay = 0.1, .scale = 2}};
}

// Five roundings: two constants, two products, the sum.
TEST(MuonUpdate, FollowsTheFormulaInDouble) {
  for (const MuonUpdateParams& params : AllUpdateParams()) {
    const std::vector<float> update = NormalFloats(kUpdateCount, 1);
    const std::vector<float> master = NormalFloats(kUpdateCount, 2);
    std::vector<float> updated = master;
    ApplyMuonUpdate(params, update, updated, {});
    for (size_t i = 0; i < kUpdateCount; ++i) {
      const double decayed = master[i] * (1 - params.lr * params.weight_decay);
      const double step = params.lr * params.scale * update[i];
      ASSERT_NEAR(updated[i], decayed - step,
                  5 * kF32Eps * (std::abs(decayed) + std::abs(step)));
    }
  }
}

TEST(MuonUpdate, RoundsAsTorchDoes) {
  const MuonUpdateParams params = {
      .lr = 0.02, .weight_decay = 0.1, .scale = 1.5};
  const std::vector<float> update = NormalFloats(kUpdateCount, 3);
  const std::vector<float> master = NormalFloats(kUpdateCount, 4);
  std::vector<float> updated = master;
  ApplyMuonUpdate(params, update, updated, {});
  const auto decay = static_cast<float>(1 - 0.02 * 0.1);
  const auto step = static_cast<float>(0.02 * 1.5);
  for (size_t i = 0; i < kUpdateCount; ++i) {
    ASSERT_EQ(updated[i], std::fma(-step, update[i], master[i] * decay));
  }
}

TEST(MuonUpdate, TheNextGenerationMayLieElsewhere) {
  const std::vector<float> update = NormalFloats(kUpdateCount, 5);
  const std::vector<float> master = NormalFloats(kUpdateCount, 6);
  for (const MuonUpdateParams& params : AllUpdateParams()) {
    std::vector<float> in_place = master;
    std::vector<float> next(kUpdateCount, -7.0F);
    ApplyMuonUpdate(params, update, in_place, {});
    ApplyMuonUpdate(params, update, {master, next}, {});
    ASSERT_TRUE(SameBits(next, in_place));
    ASSERT_TRUE(SameBits(master, NormalFloats(kUpdateCount, 6)));
  }
}

TEST(MuonUpdate, BitsDoNotDependOnTheCut) {
  const MuonUpdateParams params = AllUpdateParams()[2];
  const std::vector<float> update = NormalFloats(kUpdateCount, 5);
  const std::vector<float> master = NormalFloats(kUpdateCount, 6);
  for (const DType dtype : kWeightTypes) {
    std::vector<float> whole = master;
    WeightBuffer whole_weights(dtype, kUpdateCount);
    ApplyMuonUpdate(params, update, whole, whole_weights.view(0, kUpdateCount));
    for (const auto& [begin, count] : ManyCuts(kUpdateCount)) {
      std::vector<float> part = master;
      WeightBuffer weights = whole_weights;
      const ComputeWeights view = weights.view(begin, count);
      std::fill(view.bytes.begin(), view.bytes.end(), std::byte{0xEE});
      ApplyMuonUpdate(params, std::span(update).subspan(begin, count),
                      std::span(part).subspan(begin, count), view);
      ASSERT_TRUE(SameBits(std::span(part).subspan(begin, count),
                           std::span(whole).subspan(begin, count)));
      ASSERT_TRUE(SameBits(std::span(part).subspan(begin + count),
                           std::span(master).subspan(begin + count)));
      ASSERT_EQ(weights.bytes, whole_weights.bytes);
    }
  }
}

// The compute weight is the new master, rounded once to nearest even.
TEST(MuonUpdate, ComputeWeightsAreTheRoundedMaster) {
  std::vector<float> master = {65519.9F, 65520.0F,    -65520.0F,   70000.0F,
                               1e30F,    6e-8F,       2.98e-8F,    1e-40F,
                               -0.0F,    1.00390625F, 1.01171875F, 3.4e38F};
  const std::vector<float> ordinary = NormalFloats(100, 7);
  master.insert(master.end(), ordinary.begin(), ordinary.end());
  const std::vector<float> update(master.size(), 0.0F);
  for (const DType dtype : kWeightTypes) {
    std::vector<float> updated = master;
    WeightBuffer weights(dtype, master.size());
    ApplyMuonUpdate({.lr = 0}, update, updated, weights.view(0, master.size()));
    EXPECT_TRUE(SameBits(updated, master) || master[8] == 0.0F);
    std::vector<std::byte> expected(weights.bytes.size());
    ConvertFromF32(updated, dtype, expected);
    EXPECT_EQ(weights.bytes, expected) << DTypeName(dtype);
  }
}

TEST(MuonUpdate, WrongSizesAndTypesAreRefused) {
  const std::vector<float> update(4);
  std::vector<float> master(5);
  EXPECT_THROW(ApplyMuonUpdate({}, update, master, {}), Error);
  master.resize(4);
  for (const size_t num_bytes : {1, 7, 9, 16}) {
    std::vector<std::byte> bytes(num_bytes);
    EXPECT_THROW(ApplyMuonUpdate({}, update, master, {DType::kBF16, bytes}),
                 Error);
  }
  std::vector<std::byte> bytes(4);
  EXPECT_THROW(ApplyMuonUpdate({}, update, master, {DType::kI8, bytes}), Error);
}

TEST(MuonScale, FollowsTheModes) {
  EXPECT_EQ(MuonScale(MuonScaleMode::kSpectral, 64, 16), 2.0);
  EXPECT_EQ(MuonScale(MuonScaleMode::kSpectral, 16, 64), 1.0);
  EXPECT_EQ(MuonScale(MuonScaleMode::kSpectral, 7, 7), 1.0);
  EXPECT_EQ(MuonScale(MuonScaleMode::kSpectral, 5, 0), 1.0);
  EXPECT_DOUBLE_EQ(MuonScale(MuonScaleMode::kMatchRms, 100, 25), 2.0);
  EXPECT_DOUBLE_EQ(MuonScale(MuonScaleMode::kMatchRms, 25, 100), 2.0);
  EXPECT_EQ(MuonScale(MuonScaleMode::kMatchRms, 0, 0), 0.0);
  EXPECT_THROW(MuonScale(MuonScaleMode::kSpectral, -1, 3), Error);
}

}  // namespace
}  // namespace muonstore
