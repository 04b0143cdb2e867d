#include "src/comm/reduce.h"

#include <array>
#include <limits>

#include <gtest/gtest.h>

namespace muonstore::comm {
namespace {

using Values = std::array<int64_t, 4>;
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

Values Reduced(ReduceOp op) {
  const Values from = {kMax, -3, 0b0110, kMin};
  Values into = {1, -4, 0b0011, -1};
  Reduce(op, from, into);
  return into;
}

TEST(Reduce, SumsWrapAround) {
  EXPECT_EQ(Reduced(ReduceOp::kSum), (Values{kMin, -7, 9, kMax}));
}
TEST(Reduce, TakesTheLeast) {
  EXPECT_EQ(Reduced(ReduceOp::kMin), (Values{1, -4, 0b0011, kMin}));
}
TEST(Reduce, TakesTheGreatest) {
  EXPECT_EQ(Reduced(ReduceOp::kMax), (Values{kMax, -3, 0b0110, -1}));
}
TEST(Reduce, JoinsBits) {
  EXPECT_EQ(Reduced(ReduceOp::kBitOr), (Values{kMax, -3, 0b0111, -1}));
}

}  // namespace
}  // namespace muonstore::comm
