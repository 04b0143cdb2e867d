// The unit of fp16 momentum, against a scaler that is stepped here.
#include "converters/momentum_scale.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "muonstore/open.h"
#include "tests/partition/random_model.h"
#include "tests/testutil/fixtures.h"

namespace muonstore {
namespace {

// DeepSpeed's DynamicLossScaler, stepped; remembers the scale of each step that
// was applied.
struct SteppedScaler {
  double scale = 1024;
  double factor = 2;
  int64_t window = 3;
  int64_t shift = 1;
  double min_scale = 1;
  int64_t iteration = 0;
  int64_t last_overflow = -1;
  int64_t skipped = 0;
  int64_t hysteresis = 1;
  std::set<double> units;

  void Step(bool overflow) {
    if (overflow) {
      if (shift == 1 || hysteresis == 1) {
        scale = std::max(scale / factor, min_scale);
      } else {
        --hysteresis;
      }
      last_overflow = iteration;
      ++skipped;
    } else {
      units.insert(scale);
      const int64_t stable = iteration - last_overflow - 1;
      if (stable > 0 && stable % window == 0) {
        hysteresis = shift;
        scale *= factor;
      }
    }
    ++iteration;
  }

  CheckpointInfo Info() const {
    CheckpointInfo info;
    info.counters = {{"loss_scale", scale},
                     {"skipped_steps", skipped},
                     {"loss_scaler.scale_factor", factor},
                     {"loss_scaler.scale_window", window},
                     {"loss_scaler.cur_iter", iteration},
                     {"loss_scaler.last_overflow_iter", last_overflow},
                     {"loss_scaler.delayed_shift", shift},
                     {"loss_scaler.min_scale", min_scale}};
    return info;
  }
};

TEST(MomentumScaleTest, NeverNamesAScaleThatIsNotTheOnlyOne) {
  int num_known = 0;
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    Random random(seed);
    SteppedScaler scaler;
    scaler.window = random.Pick(1, 6);
    scaler.shift = random.Pick(1, 2);
    scaler.hysteresis = scaler.shift;
    const int64_t chance = random.Pick(0, 2) * 15;
    for (int64_t i = random.Pick(1, 8); i > 0; --i) {
      scaler.Step(random.Chance(chance));
    }
    const auto found = ReplayMomentumScale(scaler.Info());
    if (found && !scaler.units.empty()) {
      ASSERT_EQ(scaler.units.size(), 1U) << seed;
      ASSERT_EQ(*found, *scaler.units.begin()) << seed;
      ++num_known;
    }
    if (scaler.skipped == 0 && scaler.units.size() == 1) {
      ASSERT_TRUE(found.has_value()) << seed;
    }
  }
  EXPECT_GT(num_known, 1000);
}

TEST(MomentumScaleTest, RealRuns) {
  const auto scale = [](const std::string& name) {
    const auto root = testutil::FindDeepSpeedCase(name).folder / "ckpt";
    return ReplayMomentumScale(
        OpenCheckpoint(PosixFileSystem(), root.string())->info());
  };
  // Measured from the run's gradients: 256, though the file says 512.
  EXPECT_EQ(scale("s2-ws2-fp16-none-scaledoubled"), 256.0);
  const auto cases = testutil::DeepSpeedCases();
  if (std::any_of(cases.begin(), cases.end(), [](const auto& one) {
        return one.name == "s2-ws2-fp16-none-overflow2";
      })) {
    EXPECT_EQ(scale("s2-ws2-fp16-none-overflow"), 256.0);  // The file says 128.
    EXPECT_EQ(scale("s2-ws2-fp16-none-overflow2"), std::nullopt);
    EXPECT_EQ(scale("s3-ws2-fp16-none-scalemid"), std::nullopt);
    EXPECT_EQ(scale("s3-ws2-fp16-none-scaledoubled"), 256.0);
  }
  // No dynamic scaler, nothing to replay.
  EXPECT_EQ(scale("s2-ws2-bf16-none-base"), std::nullopt);
}

TEST(MomentumScaleTest, NonsenseIsLeftOpen) {
  SteppedScaler scaler;
  scaler.Step(false);
  scaler.window = 0;
  EXPECT_FALSE(ReplayMomentumScale(scaler.Info()).has_value());
  scaler.window = 3;
  scaler.iteration = int64_t{1} << 62;
  EXPECT_FALSE(ReplayMomentumScale(scaler.Info()).has_value());
  EXPECT_FALSE(ReplayMomentumScale(CheckpointInfo()).has_value());
}

}  // namespace
}  // namespace muonstore
