#include "src/executor/chunk_exchange.h"

namespace muonstore {
namespace {

// Calls visit(owner, piece, segment bytes or nothing, buffer bytes or nothing)
// for every piece of the round that this rank has a side of.
template <typename Visit>
void ForEachPiece(const ChunkPlan& plan, size_t round, int32_t rank,
                  const SegmentOf& segment_of, std::span<std::byte> buffer,
                  const Visit& visit) {
  const auto num_ranks = static_cast<int32_t>(plan.chunks.size());
  for (int32_t owner = 0; owner < num_ranks; ++owner) {
    const Chunk* chunk = plan.chunk(owner, round);
    if (chunk == nullptr) continue;
    int64_t first = 0;  // Of the task's matrix in the owner's buffer.
    for (const size_t index : chunk->tasks) {
      const MatrixTask& task = plan.tasks[index];
      for (const MatrixPiece& piece : task.pieces) {
        std::span<std::byte> segment;
        std::span<std::byte> place;
        if (piece.rank == rank) {
          segment = std::as_writable_bytes(segment_of(task).subspan(
              static_cast<size_t>(piece.segment_offset),
              static_cast<size_t>(piece.length)));
        }
        if (owner == rank) {
          place = buffer.subspan(
              static_cast<size_t>(first + piece.matrix_offset) * sizeof(float),
              static_cast<size_t>(piece.length) * sizeof(float));
        }
        visit(owner, piece, segment, place);
      }
      first += task.num_elements();
    }
  }
}

}  // namespace

ExchangePlan PlanGather(const ChunkPlan& plan, size_t round, int32_t rank,
                        const SegmentOf& source, std::span<std::byte> buffer) {
  ExchangePlan exchange;
  ForEachPiece(
      plan, round, rank, source, buffer,
      [&exchange](int32_t owner, const MatrixPiece& piece,
                  std::span<std::byte> segment, std::span<std::byte> place) {
        if (!segment.empty()) {
          exchange.sends.push_back({owner, segment});
        }
        if (!place.empty()) {
          exchange.receives.push_back({piece.rank, place});
        }
      });
  return exchange;
}

ExchangePlan PlanScatter(const ChunkPlan& plan, size_t round, int32_t rank,
                         const SegmentOf& dest, std::span<std::byte> buffer) {
  ExchangePlan exchange;
  ForEachPiece(
      plan, round, rank, dest, buffer,
      [&exchange](int32_t owner, const MatrixPiece& piece,
                  std::span<std::byte> segment, std::span<std::byte> place) {
        if (!place.empty()) {
          exchange.sends.push_back({piece.rank, place});
        }
        if (!segment.empty()) {
          exchange.receives.push_back({owner, segment});
        }
      });
  return exchange;
}

}  // namespace muonstore
