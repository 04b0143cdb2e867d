#include "src/executor/matrix_task.h"

#include <algorithm>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/store/store_ranks.h"

namespace muonstore {
namespace {

using testutil::SmallModel;

std::vector<MatrixTask> Tasks(const std::vector<ParameterSpec>& model,
                              int32_t stage, int32_t num_ranks) {
  return MakeMatrixTasks(
      model,
      Partitioning::Build(model, {.stage = stage, .num_ranks = num_ranks}), {});
}

TEST(MatrixTaskTest, EveryMatrixOfEveryLayoutIsOneTask) {
  std::map<int32_t, int> count;
  for (const MatrixTask& task : Tasks(SmallModel(), 2, 3)) {
    ++count[task.parameter];
  }
  // Packed q, k, v; two whole matrices; three experts; nothing of Adam's.
  EXPECT_EQ(count, (std::map<int32_t, int>{{1, 3}, {2, 1}, {3, 1}, {4, 3}}));
}

TEST(MatrixTaskTest, PiecesCoverEachMatrixOnce) {
  for (const int32_t stage : {1, 2, 3}) {
    for (const int32_t num_ranks : {1, 2, 3, 8, 50}) {
      for (const MatrixTask& task : Tasks(SmallModel(), stage, num_ranks)) {
        int64_t covered = 0;
        for (const MatrixPiece& piece : task.pieces) {
          EXPECT_EQ(piece.matrix_offset, covered);
          EXPECT_LT(piece.rank, num_ranks);
          covered += piece.length;
        }
        EXPECT_EQ(covered, task.num_elements());
      }
    }
  }
}

TEST(MatrixTaskTest, PiecesPointToTheRightElements) {
  // Interleaved [Q, K, V] heads of two rows, cut over three ranks at stage 3:
  // the flat element of each matrix element is known from its row.
  const std::vector<ParameterSpec> model = {
      {.name = "qkv",
       .shape = Shape({12, 5}),
       .layout = MatrixLayout::InterleavedPacked(2, 1)}};
  const auto tasks = Tasks(model, 3, 3);
  ASSERT_EQ(tasks.size(), 3U);
  for (int64_t kind = 0; kind < 3; ++kind) {
    const MatrixTask& task = tasks[static_cast<size_t>(kind)];
    for (const MatrixPiece& piece : task.pieces) {
      for (int64_t i = 0; i < piece.length; ++i) {
        const int64_t row = (piece.matrix_offset + i) / 5;
        const int64_t col = (piece.matrix_offset + i) % 5;
        const int64_t element = (row / 2 * 6 + kind * 2 + row % 2) * 5 + col;
        EXPECT_EQ(piece.rank * 20 + piece.segment_offset + i, element);
      }
    }
  }
}

TEST(MatrixTaskTest, OneRankOwnsAllInPlace) {
  for (const MatrixTask& task : Tasks(SmallModel(), 2, 1)) {
    EXPECT_TRUE(task.in_place());
  }
}

TEST(MatrixTaskTest, WorkIsSharedByCost) {
  std::vector<ParameterSpec> model;
  for (int i = 0; i < 40; ++i) {
    model.push_back({.name = "w" + std::to_string(i),
                     .shape = Shape({64, i % 4 == 0 ? 256 : 64})});
  }
  for (const int32_t stage : {2, 3}) {
    std::vector<double> load(4, 0);
    for (const MatrixTask& task : Tasks(model, stage, 4)) {
      load[static_cast<size_t>(task.owner)] += task.flops;
    }
    const auto [least, most] = std::minmax_element(load.begin(), load.end());
    EXPECT_LT(*most, 1.2 * *least) << "stage " << stage;
  }
}

TEST(MatrixTaskTest, ARankKeepsWhatItHoldsWhileItsShareIsFair) {
  std::vector<ParameterSpec> model;
  for (int i = 0; i < 32; ++i) {
    model.push_back(
        {.name = "w" + std::to_string(i), .shape = Shape({32, 32})});
  }
  int in_place = 0;
  for (const MatrixTask& task : Tasks(model, 2, 4)) {
    in_place += task.in_place() ? 1 : 0;
  }
  EXPECT_EQ(in_place, 32);
}

TEST(MatrixTaskTest, EveryRankComputesTheSameOwners) {
  const auto first = Tasks(SmallModel(), 2, 5);
  const auto second = Tasks(SmallModel(), 2, 5);
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].owner, second[i].owner);
  }
}

}  // namespace
}  // namespace muonstore
