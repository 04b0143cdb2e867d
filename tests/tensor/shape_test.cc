#include "muonstore/shape.h"

#include <cstdint>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/tensor/error_of.h"

namespace muonstore {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kHuge = int64_t{1} << 40;

TEST(ShapeTest, ScalarHasOneElement) {
  const Shape scalar;
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.num_elements(), 1);
  EXPECT_EQ(scalar.num_rows(), 1);
  EXPECT_EQ(scalar.row_elements(), 1);
  EXPECT_EQ(scalar.ToString(), "[]");
  EXPECT_THAT(scalar.ContiguousStrides(), IsEmpty());
  EXPECT_EQ(scalar, Shape(std::vector<int64_t>{}));
}

TEST(ShapeTest, CountsElementsRowsAndStrides) {
  const Shape shape({4, 3, 5});
  EXPECT_EQ(shape.num_elements(), 60);
  EXPECT_EQ(shape.num_rows(), 4);
  EXPECT_EQ(shape.row_elements(), 15);
  EXPECT_EQ(shape.dim(2), 5);
  EXPECT_EQ(shape.ToString(), "[4, 3, 5]");
  EXPECT_THAT(shape.ContiguousStrides(), ElementsAre(15, 5, 1));
}

TEST(ShapeTest, EmptyTensorsHaveStridesAsIfEachDimensionWereOne) {
  const Shape shape({2, 0, 3});
  EXPECT_EQ(shape.num_elements(), 0);
  EXPECT_EQ(shape.row_elements(), 0);
  EXPECT_THAT(shape.ContiguousStrides(), ElementsAre(3, 3, 1));
  EXPECT_EQ(Shape({0, 7}).row_elements(), 0);
}

TEST(ShapeTest, OneZeroMakesHugeDimensionsHarmless) {
  const Shape shape({kHuge, kMax, 0, kHuge, kHuge});
  EXPECT_EQ(shape.num_elements(), 0);
  EXPECT_EQ(shape.ContiguousStrides().size(), 5U);
  EXPECT_EQ(shape.ContiguousStrides()[3], kHuge);
}

TEST(ShapeTest, LargestCountFits) {
  EXPECT_EQ(Shape({kMax, 1}).num_elements(), kMax);
}

TEST(ShapeTest, RefusesNegativeDimensionsAndOverflow) {
  for (const std::vector<int64_t>& dims :
       {std::vector<int64_t>{-1},
        {3, -2},
        {0, -1},
        {kHuge, kHuge},
        {kMax, 2},
        {1 << 30, 1 << 30, 1 << 30, 1 << 30}}) {
    EXPECT_EQ(CodeOf([&dims] { const Shape shape(dims); }),
              ErrorCode::kDataLoss);
  }
}

TEST(ShapeTest, ComparesAsTuples) {
  EXPECT_LT(Shape({7, 9}), Shape({9, 6}));
  EXPECT_LT(Shape({9}), Shape({9, 0}));
  EXPECT_LT(Shape(), Shape({0}));
  EXPECT_GT(Shape({7, 9}), Shape({7, 7}));
  EXPECT_NE(Shape({6}), Shape({2, 3}));
}

TEST(CheckedArithmeticTest, GivesExactResultsUpToTheLimit) {
  EXPECT_EQ(CheckedMultiply(kHuge, 1 << 22, "n"), kHuge << 22);
  EXPECT_EQ(CheckedMultiply(kMax, 0, "n"), 0);
  EXPECT_EQ(CheckedAdd(kMax - 5, 5, "n"), kMax);
}

TEST(CheckedArithmeticTest, NamesTheCountThatOverflows) {
  EXPECT_THAT(
      MessageOf([] { CheckedMultiply(kMax, 2, "the size of a record"); }),
      HasSubstr("the size of a record"));
  EXPECT_THAT(MessageOf([] { CheckedAdd(kMax, 1, "the file size"); }),
              HasSubstr("the file size"));
}

TEST(CheckedArithmeticTest, RefusesNegativeCounts) {
  const auto add = [](int64_t a, int64_t b) {
    return CodeOf([a, b] { CheckedAdd(a, b, "n"); });
  };
  const auto multiply = [](int64_t a, int64_t b) {
    return CodeOf([a, b] { CheckedMultiply(a, b, "n"); });
  };
  EXPECT_EQ(add(-1, 1), ErrorCode::kDataLoss);
  EXPECT_EQ(add(1, -1), ErrorCode::kDataLoss);
  EXPECT_EQ(multiply(-1, 0), ErrorCode::kDataLoss);
  EXPECT_EQ(multiply(0, -1), ErrorCode::kDataLoss);
}

}  // namespace
}  // namespace muonstore
