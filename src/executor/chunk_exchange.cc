#include "src/executor/chunk_exchange.h"

#include <utility>
#include <vector>

namespace muonstore {
namespace {

// What a round moves between this rank's segments and, where it is an owner,
// its buffer; a peer's name with each. One is the other rank's other side.
struct Sides {
  std::vector<ReceivePiece> segments;
  std::vector<ReceivePiece> buffers;
};

Sides SidesOf(const ChunkPlan& plan, size_t round, int32_t rank,
              const MemoryOf& memory_of, std::span<std::byte> buffer) {
  Sides sides;
  const auto num_ranks = static_cast<int32_t>(plan.chunks.size());
  for (int32_t owner = 0; owner < num_ranks; ++owner) {
    const Chunk* chunk = plan.chunk(owner, round);
    if (chunk == nullptr) continue;
    int64_t first = 0;  // Of the task's matrix in the owner's buffer.
    for (const size_t index : chunk->tasks) {
      const MatrixTask& task = plan.tasks[index];
      for (const MatrixPiece& piece : task.pieces) {
        const auto length = static_cast<size_t>(piece.length);
        if (piece.rank == rank) {
          sides.segments.push_back(
              {owner, std::as_writable_bytes(memory_of(task, piece))});
        }
        if (owner == rank) {
          sides.buffers.push_back(
              {piece.rank,
               buffer.subspan(static_cast<size_t>(first + piece.matrix_offset) *
                                  sizeof(float),
                              length * sizeof(float))});
        }
      }
      first += task.num_elements();
    }
  }
  return sides;
}

ExchangePlan From(const std::vector<ReceivePiece>& sources,
                  std::vector<ReceivePiece> dests) {
  ExchangePlan exchange{.receives = std::move(dests)};
  for (const ReceivePiece& source : sources) {
    exchange.sends.push_back({source.peer, source.data});
  }
  return exchange;
}

}  // namespace

ExchangePlan PlanGather(const ChunkPlan& plan, size_t round, int32_t rank,
                        const MemoryOf& source, std::span<std::byte> buffer) {
  Sides sides = SidesOf(plan, round, rank, source, buffer);
  return From(sides.segments, std::move(sides.buffers));
}

ExchangePlan PlanScatter(const ChunkPlan& plan, size_t round, int32_t rank,
                         const MemoryOf& dest, std::span<std::byte> buffer) {
  Sides sides = SidesOf(plan, round, rank, dest, buffer);
  return From(sides.buffers, std::move(sides.segments));
}

}  // namespace muonstore
