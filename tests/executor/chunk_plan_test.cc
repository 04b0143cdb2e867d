#include "src/executor/chunk_plan.h"

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"

namespace muonstore {
namespace {

using ::testing::HasSubstr;

std::vector<ParameterSpec> Squares(int count, int64_t side) {
  std::vector<ParameterSpec> model;
  for (int i = 0; i < count; ++i) {
    model.push_back(
        {.name = "w" + std::to_string(i), .shape = Shape({side, side})});
  }
  return model;
}

ChunkPlan Plan(const std::vector<ParameterSpec>& model, int32_t stage,
               ChunkPlanOptions options) {
  return PlanChunks(
      MakeMatrixTasks(
          model,
          Partitioning::Build(model,
                              {.stage = stage, .num_ranks = options.num_ranks}),
          {}),
      model, options);
}

TEST(ChunkPlanTest, EveryTaskHasOnePlaceAtItsOwner) {
  const auto model = testutil::SmallModel();
  for (const int32_t stage : {2, 3}) {
    const ChunkPlan plan = Plan(model, stage, {.num_ranks = 3});
    std::multiset<size_t> seen;
    for (int32_t rank = 0; rank < 3; ++rank) {
      for (const size_t i : plan.in_place[static_cast<size_t>(rank)]) {
        EXPECT_TRUE(plan.tasks[i].in_place());
        EXPECT_EQ(plan.tasks[i].owner, rank);
        seen.insert(i);
      }
      for (const Chunk& chunk : plan.chunks[static_cast<size_t>(rank)]) {
        EXPECT_LE(chunk.bytes(), plan.buffer_bytes);
        for (const size_t i : chunk.tasks) {
          EXPECT_EQ(plan.tasks[i].owner, rank);
          EXPECT_EQ(plan.tasks[i].rows, chunk.rows);
          EXPECT_EQ(plan.tasks[i].cols, chunk.cols);
          seen.insert(i);
        }
      }
    }
    EXPECT_EQ(seen.size(), plan.tasks.size());
    EXPECT_EQ(std::set<size_t>(seen.begin(), seen.end()).size(), seen.size());
  }
}

TEST(ChunkPlanTest, OneRankGathersNothing) {
  const ChunkPlan plan = Plan(testutil::SmallModel(), 3, {.num_ranks = 1});
  EXPECT_EQ(plan.num_rounds, 0U);
  EXPECT_EQ(plan.num_buffers, 0);
}

TEST(ChunkPlanTest, ADeviceOfItsOwnMemoryGetsEveryMatrixInABuffer) {
  const ChunkPlan plan =
      Plan(testutil::SmallModel(), 2, {.num_ranks = 1, .in_place = false});
  EXPECT_GT(plan.num_rounds, 0U);
  EXPECT_THAT(plan.in_place[0], ::testing::IsEmpty());
  EXPECT_EQ(plan.num_buffers, 4);
}

TEST(ChunkPlanTest, ALimitHoldsForAllBuffersTogether) {
  const auto model = Squares(30, 64);  // 16 KiB each.
  for (const uint64_t limit : {16U << 10, 40U << 10, 100U << 10, 1000U << 10}) {
    const ChunkPlan plan =
        Plan(model, 3, {.num_ranks = 2, .max_gather_bytes = limit});
    EXPECT_LE(static_cast<uint64_t>(plan.num_buffers) * plan.buffer_bytes,
              limit);
    EXPECT_GE(plan.num_buffers, 1);
    EXPECT_EQ(plan.overlap, plan.num_buffers >= 2);
  }
}

TEST(ChunkPlanTest, AMatrixBeyondALimitThatWasSetIsNamed) {
  auto model = Squares(3, 8);
  model[1].shape = Shape({64, 64});
  const auto plan = [&] {
    Plan(model, 3, {.num_ranks = 2, .max_gather_bytes = 16383});
  };
  EXPECT_EQ(CodeOf(plan), ErrorCode::kResourceExhausted);
  EXPECT_THAT(TextOf(plan), HasSubstr("w1"));
  EXPECT_THAT(TextOf(plan), HasSubstr("16384"));
}

TEST(ChunkPlanTest, TheDefaultLimitTakesTwoOfTheLargestMatrix) {
  // 320 MiB: more than the default allows for two.
  const auto model = Squares(2, 9160);
  const ChunkPlan plan = Plan(model, 3, {.num_ranks = 2});
  EXPECT_EQ(plan.num_buffers, 2);
  EXPECT_TRUE(plan.overlap);
  EXPECT_EQ(plan.buffer_bytes, 9160U * 9160 * 4);
}

TEST(ChunkPlanTest, WithoutOverlapOneBufferDoes) {
  const ChunkPlan plan =
      Plan(Squares(8, 32), 3, {.num_ranks = 2, .overlap = false});
  EXPECT_EQ(plan.num_buffers, 1);
  EXPECT_FALSE(plan.overlap);
}

}  // namespace
}  // namespace muonstore
