#include "src/tensor/value_difference.h"

#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muonstore {
namespace {

using Floats = std::vector<float>;

std::string Difference(const Floats& a, const Floats& b) {
  ValueDifference difference;
  difference.Compare(DType::kF32, std::as_bytes(std::span(a)),
                     std::as_bytes(std::span(b)), 100);
  return difference.count() == 0 ? "" : difference.ToString();
}

Floats Numbers(size_t count) {
  Floats values(count);
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

TEST(ValueDifference, CountsElementsWithOtherBits) {
  Floats a = Numbers(5000);
  Floats b = a;
  EXPECT_EQ(Difference(a, b), "");
  b[4999] += 4;
  EXPECT_EQ(Difference(a, b), "1 element, the first at 5099, by at most 4");
  b[1023] -= 8;
  b[1024] += 2;
  EXPECT_EQ(Difference(a, b), "3 elements, the first at 1123, by at most 8");
}

TEST(ValueDifference, ZerosHaveSignsAndNansAreAlike) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Difference({0.0F}, {-0.0F}),
            "1 element, the first at 100, by at most 0");
  EXPECT_EQ(Difference({nan}, {-nan}), "");
  EXPECT_EQ(Difference({1, nan, 1}, {1, 7, 9}),
            "2 elements, the first at 101, by at most nan");
}

TEST(ValueDifference, PartsMergeInAnyOrder) {
  const Floats a = Numbers(10);
  const auto part = [&](size_t at, float by) {
    Floats b = a;
    b[at] += by;
    ValueDifference difference;
    difference.Compare(DType::kF32, std::as_bytes(std::span(a)),
                       std::as_bytes(std::span(b)), 0);
    return difference;
  };
  ValueDifference sum;
  sum.Merge(part(7, 1));
  sum.Merge(part(0, 0));
  sum.Merge(part(3, 2));
  EXPECT_EQ(sum.ToString(), "2 elements, the first at 3, by at most 2");
}

}  // namespace
}  // namespace muonstore
