#include "formats/native/block_checks.h"

#include <gtest/gtest.h>

namespace muonstore::native {
namespace {

constexpr uint64_t kSize = 1 << 20;
constexpr uint64_t kRest = BlockChecks::kRestBytes;

TEST(BlockChecks, ASmallBlockIsDueAtOnce) {
  BlockChecks checks;
  EXPECT_TRUE(checks.Add({0, 0}, 10, 11, kRest));
  EXPECT_TRUE(checks.Add({0, 0}, 10, 11, kRest + 1));
  EXPECT_FALSE(checks.Add({0, 0}, 10, 11, kRest + 2));
}

TEST(BlockChecks, PartsInAnyOrderAddUpOnce) {
  BlockChecks checks;
  EXPECT_FALSE(checks.Add({1, 2}, kSize / 2, kSize, kSize));
  EXPECT_FALSE(checks.Add({1, 2}, kSize / 2, kSize, kSize)) << "seen before";
  EXPECT_FALSE(checks.Add({1, 2}, 0, kSize / 4, kSize));
  EXPECT_FALSE(checks.Add({1, 2}, kSize / 8, kSize / 2 - kRest - 1, kSize));
  EXPECT_FALSE(checks.Add({1, 3}, 0, kSize / 2, kSize)) << "another block";
  EXPECT_TRUE(
      checks.Add({1, 2}, kSize / 2 - kRest - 1, kSize / 2 - kRest, kSize));
}

TEST(BlockChecks, AWholeBlockIsNeverDueAgain) {
  BlockChecks checks;
  checks.SetWhole({0, 0});
  EXPECT_FALSE(checks.Add({0, 0}, 0, 10, 10));
  EXPECT_TRUE(checks.Add({0, 1}, 0, 10, 10));
}

TEST(BlockChecks, ReadsHereAndThereTakeBoundedMemory) {
  BlockChecks checks;
  const uint64_t size = uint64_t{4} << 30;
  for (uint64_t i = 0; i < 2 * BlockChecks::kMaxParts; ++i) {
    ASSERT_FALSE(checks.Add({i % 7, 0}, 16 * i, 16 * i + 1, size));
  }
  EXPECT_FALSE(checks.Add({0, 0}, 0, size / 2, size));
  EXPECT_TRUE(checks.Add({0, 0}, size / 2, size, size));
}

}  // namespace
}  // namespace muonstore::native
