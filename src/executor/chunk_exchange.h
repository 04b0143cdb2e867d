// One rank's side of a round's exchanges.
//
// What: gather brings what the owners orthogonalize from the segments to their
//   buffers, scatter takes the results back to the same elements of the
//   gradient segments. Both sides of a pair list the pieces in the same order:
//   by task of the owner's chunk, then by place in the matrix.
// Ownership: plans refer to that memory and the buffer.

#ifndef MUONSTORE_SRC_EXECUTOR_CHUNK_EXCHANGE_H_
#define MUONSTORE_SRC_EXECUTOR_CHUNK_EXCHANGE_H_

#include <cstddef>
#include <functional>
#include <span>

#include "muonstore/communicator.h"
#include "src/executor/chunk_plan.h"

namespace muonstore {

// Where a piece of a task's matrix is read from or written to on this rank.
using MemoryOf = std::function<std::span<float>(const MatrixTask& task,
                                                const MatrixPiece& piece)>;

// `buffer`: this rank's, empty where it has no chunk in this round.
ExchangePlan PlanGather(const ChunkPlan& plan, size_t round, int32_t rank,
                        const MemoryOf& source, std::span<std::byte> buffer);
ExchangePlan PlanScatter(const ChunkPlan& plan, size_t round, int32_t rank,
                         const MemoryOf& dest, std::span<std::byte> buffer);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_CHUNK_EXCHANGE_H_
