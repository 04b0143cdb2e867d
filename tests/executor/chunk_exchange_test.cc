#include "src/executor/chunk_exchange.h"

#include <cstring>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "tests/store/store_ranks.h"

namespace muonstore {
namespace {

// The ranks of one process: their segments and buffers, and exchanges by hand.
class FakeRanks {
 public:
  FakeRanks(const std::vector<ParameterSpec>& model, int32_t stage,
            int32_t num_ranks)
      : partitioning_(Partitioning::Build(
            model,
            {.stage = stage, .num_ranks = num_ranks, .sub_group_size = 60})),
        plan_(PlanChunks(MakeMatrixTasks(model, partitioning_, {}), model,
                         {.num_ranks = num_ranks, .in_place = false})) {
    for (int32_t rank = 0; rank < num_ranks; ++rank) {
      for (size_t g = 0; g < partitioning_.groups().size(); ++g) {
        segments_[{rank, static_cast<int32_t>(g)}].resize(
            static_cast<size_t>(partitioning_.groups()[g].partition_elements));
      }
      buffers_.emplace_back(plan_.buffer_bytes);
    }
  }

  MemoryOf MemoryOfRank(int32_t rank) {
    return [this, rank](const MatrixTask& task, const MatrixPiece& piece) {
      return std::span(segments_[{rank, task.flat_group}])
          .subspan(static_cast<size_t>(piece.segment_offset),
                   static_cast<size_t>(piece.length));
    };
  }

  // Runs what the ranks' plans say, pair by pair.
  void Exchange(const std::vector<ExchangePlan>& plans) {
    const auto num_ranks = static_cast<int32_t>(plans.size());
    for (int32_t from = 0; from < num_ranks; ++from) {
      for (int32_t to = 0; to < num_ranks; ++to) {
        std::vector<std::byte> bytes;
        for (const SendPiece& send : plans[static_cast<size_t>(from)].sends) {
          if (send.peer == to) {
            bytes.insert(bytes.end(), send.data.begin(), send.data.end());
          }
        }
        size_t at = 0;
        for (const ReceivePiece& receive :
             plans[static_cast<size_t>(to)].receives) {
          if (receive.peer != from) continue;
          ASSERT_LE(at + receive.data.size(), bytes.size());
          std::memcpy(receive.data.data(), bytes.data() + at,
                      receive.data.size());
          at += receive.data.size();
        }
        EXPECT_EQ(at, bytes.size());
      }
    }
  }

  Partitioning partitioning_;
  ChunkPlan plan_;
  std::map<std::pair<int32_t, int32_t>, std::vector<float>> segments_;
  std::vector<std::vector<std::byte>> buffers_;
};

// Numbers every element of every task through its pieces.
float NumberOf(size_t task, int64_t element) {
  return static_cast<float>(task) * 1000 + static_cast<float>(element);
}

void NumberSegments(FakeRanks& ranks, float sign) {
  for (size_t t = 0; t < ranks.plan_.tasks.size(); ++t) {
    const MatrixTask& task = ranks.plan_.tasks[t];
    for (const MatrixPiece& piece : task.pieces) {
      for (int64_t i = 0; i < piece.length; ++i) {
        ranks.segments_[{piece.rank, task.flat_group}]
                       [static_cast<size_t>(piece.segment_offset + i)] =
            sign * NumberOf(t, piece.matrix_offset + i);
      }
    }
  }
}

void ExpectSegments(FakeRanks& ranks, float sign) {
  for (size_t t = 0; t < ranks.plan_.tasks.size(); ++t) {
    const MatrixTask& task = ranks.plan_.tasks[t];
    for (const MatrixPiece& piece : task.pieces) {
      for (int64_t i = 0; i < piece.length; ++i) {
        const auto& segment = ranks.segments_[{piece.rank, task.flat_group}];
        EXPECT_EQ(segment[static_cast<size_t>(piece.segment_offset + i)],
                  sign * NumberOf(t, piece.matrix_offset + i));
      }
    }
  }
}

// Checks a gathered buffer and negates it.
void NegateBuffer(FakeRanks& ranks, int32_t rank, size_t round) {
  const Chunk* chunk = ranks.plan_.chunk(rank, round);
  if (chunk == nullptr) return;
  auto* data = reinterpret_cast<float*>(
      ranks.buffers_[static_cast<size_t>(rank)].data());
  for (size_t m = 0; m < chunk->tasks.size(); ++m) {
    for (int64_t i = 0; i < chunk->matrix_elements(); ++i) {
      float& value =
          data[static_cast<int64_t>(m) * chunk->matrix_elements() + i];
      EXPECT_EQ(value, NumberOf(chunk->tasks[m], i));
      value = -value;
    }
  }
}

class ChunkExchangeTest
    : public ::testing::TestWithParam<std::tuple<int32_t, int32_t>> {};

TEST_P(ChunkExchangeTest, GatherAndScatterReachEveryElement) {
  const auto [stage, num_ranks] = GetParam();
  auto model = testutil::SmallModel();
  model.push_back({.name = "interleaved",
                   .shape = Shape({24, 5}),
                   .layout = MatrixLayout::InterleavedPacked(2, 2)});
  FakeRanks ranks(model, stage, num_ranks);
  NumberSegments(ranks, 1);
  for (size_t round = 0; round < ranks.plan_.num_rounds; ++round) {
    std::vector<ExchangePlan> gathers;
    std::vector<ExchangePlan> scatters;
    for (int32_t rank = 0; rank < num_ranks; ++rank) {
      auto& buffer = ranks.buffers_[static_cast<size_t>(rank)];
      gathers.push_back(PlanGather(ranks.plan_, round, rank,
                                   ranks.MemoryOfRank(rank), buffer));
      scatters.push_back(PlanScatter(ranks.plan_, round, rank,
                                     ranks.MemoryOfRank(rank), buffer));
    }
    ranks.Exchange(gathers);
    for (int32_t rank = 0; rank < num_ranks; ++rank) {
      NegateBuffer(ranks, rank, round);
    }
    ranks.Exchange(scatters);
  }
  ExpectSegments(ranks, -1);
}

INSTANTIATE_TEST_SUITE_P(StagesAndRanks, ChunkExchangeTest,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::Values(1, 2, 3, 7)));

}  // namespace
}  // namespace muonstore
