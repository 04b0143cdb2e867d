#include "src/partition/copy_ops.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muonstore {
namespace {

using ::testing::ElementsAre;

TEST(MergeOpsTest, JoinsSingleRunsThatAreNeighboursOnBothSides) {
  EXPECT_THAT(MergeOps({{0, 1, 14, 4, 2}, {0, 1, 10, 0, 4}}),
              ElementsAre(CopyOp{0, 1, 10, 0, 6}));
  // Neighbours on one side only, or of other segments.
  EXPECT_EQ(MergeOps({{0, 1, 10, 0, 4}, {0, 1, 15, 4, 2}}).size(), 2U);
  EXPECT_EQ(MergeOps({{0, 1, 10, 0, 4}, {0, 1, 14, 5, 2}}).size(), 2U);
  EXPECT_EQ(MergeOps({{0, 1, 10, 0, 4}, {2, 1, 14, 4, 2}}).size(), 2U);
  EXPECT_EQ(MergeOps({{0, 1, 10, 0, 4}, {0, 2, 14, 4, 2}}).size(), 2U);
}

TEST(MergeOpsTest, DoesNotWidenTheFirstOfManyRuns) {
  const std::vector<CopyOp> ops = {{0, 0, 0, 0, 4, 3, 20, 20}, {0, 0, 4, 4, 2}};
  EXPECT_EQ(MergeOps(ops), ops);
  const std::vector<CopyOp> other = {{0, 0, 0, 0, 2},
                                     {0, 0, 2, 2, 4, 3, 20, 20}};
  EXPECT_EQ(MergeOps(other), other);
}

TEST(MergeOpsTest, RunsWithoutGapsAreOneRun) {
  EXPECT_THAT(MergeOps({{0, 0, 5, 7, 4, 3, 4, 4}}),
              ElementsAre(CopyOp{0, 0, 5, 7, 12}));
  EXPECT_THAT(MergeOps({{0, 0, 5, 7, 4, 3, 4, 6}}),
              ElementsAre(CopyOp{0, 0, 5, 7, 4, 3, 4, 6}));
}

TEST(MergeOpsTest, ContinuesStridedRunsWithEqualStrides) {
  EXPECT_THAT(MergeOps({{0, 0, 0, 0, 2, 3, 5, 7}, {0, 0, 15, 21, 2, 2, 5, 7}}),
              ElementsAre(CopyOp{0, 0, 0, 0, 2, 5, 5, 7}));
  EXPECT_THAT(MergeOps({{0, 0, 0, 0, 2, 3, 5, 7}, {0, 0, 15, 21, 2}}),
              ElementsAre(CopyOp{0, 0, 0, 0, 2, 4, 5, 7}));
  // Another stride, another distance, a source that goes backwards.
  EXPECT_EQ(
      MergeOps({{0, 0, 0, 0, 2, 3, 5, 7}, {0, 0, 15, 21, 2, 2, 5, 8}}).size(),
      2U);
  EXPECT_EQ(
      MergeOps({{0, 0, 0, 0, 2, 3, 5, 7}, {0, 0, 16, 21, 2, 2, 5, 7}}).size(),
      2U);
  EXPECT_EQ(MergeOps({{0, 0, 9, 0, 2}, {0, 0, 3, 4, 2}}).size(), 2U);
}

}  // namespace
}  // namespace muonstore
