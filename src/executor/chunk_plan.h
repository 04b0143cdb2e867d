// In which order the ranks gather, orthogonalize and scatter matrices.
//
// What: each rank works off its own list of chunks, batches of same-shaped
//   matrices that are gathered into one buffer; chunk k of all ranks is one
//   exchange. Matrices that lie whole on their owner need no chunk.
// Threads: pure; every rank computes the same plan.
// Failures: Error(kResourceExhausted) for a matrix larger than a limit that the
//   user set.

#ifndef MUONSTORE_SRC_EXECUTOR_CHUNK_PLAN_H_
#define MUONSTORE_SRC_EXECUTOR_CHUNK_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "muonstore/parameter.h"
#include "src/executor/matrix_task.h"

namespace muonstore {

// Of a rank's gather buffers, unless a limit is set or matrices are larger.
inline constexpr uint64_t kDefaultGatherBytes = uint64_t{256} << 20;
// Beyond this a longer chunk only delays the overlap.
inline constexpr uint64_t kDefaultChunkBytes = uint64_t{8} << 20;

// Matrices of one shape, dense, one behind the other in a gather buffer.
struct Chunk {
  std::vector<size_t> tasks;  // Indices into ChunkPlan::tasks.
  int64_t rows = 0;
  int64_t cols = 0;

  int64_t matrix_elements() const { return rows * cols; }
  uint64_t bytes() const {
    return tasks.size() * static_cast<uint64_t>(matrix_elements()) *
           sizeof(float);
  }
};

struct ChunkPlanOptions {
  int32_t num_ranks = 1;
  // See ExecutorOptions::max_gather_bytes.
  uint64_t max_gather_bytes = 0;
  // Of a gather buffer, unless a matrix is larger.
  uint64_t chunk_bytes = kDefaultChunkBytes;
  bool overlap = true;
  // False: the device does not work in host memory, so that every matrix goes
  // through a gather buffer.
  bool in_place = true;
};

struct ChunkPlan {
  std::vector<MatrixTask> tasks;
  // By rank: tasks that are done in place.
  std::vector<std::vector<size_t>> in_place;
  // By rank and round.
  std::vector<std::vector<Chunk>> chunks;
  size_t num_rounds = 0;
  // Gather buffers of each rank, and the bytes of one.
  int32_t num_buffers = 0;
  uint64_t buffer_bytes = 0;
  bool overlap = true;

  uint64_t total_bytes() const {
    return static_cast<uint64_t>(num_buffers) * buffer_bytes;
  }
  // Null where the rank has nothing to do in this round.
  const Chunk* chunk(int32_t rank, size_t round) const {
    const auto& of_rank = chunks[static_cast<size_t>(rank)];
    return round < of_rank.size() ? &of_rank[round] : nullptr;
  }
  // Of all ranks.
  std::vector<size_t> TasksOfRound(size_t round) const;
};

ChunkPlan PlanChunks(std::vector<MatrixTask> tasks,
                     std::span<const ParameterSpec> parameters,
                     const ChunkPlanOptions& options);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_CHUNK_PLAN_H_
