// One rank's side of a round's exchanges.
//
// What: gather brings what the owners orthogonalize from the segments to their
//   buffers, scatter takes the results back to the same elements of the
//   gradient segments. Both sides of a pair list the pieces in the same order:
//   by task of the owner's chunk, then by place in the matrix.
// Ownership: plans refer to segments and buffer.

#ifndef MUONSTORE_SRC_EXECUTOR_CHUNK_EXCHANGE_H_
#define MUONSTORE_SRC_EXECUTOR_CHUNK_EXCHANGE_H_

#include <cstddef>
#include <functional>
#include <span>

#include "muonstore/communicator.h"
#include "src/executor/chunk_plan.h"

namespace muonstore {

// The segment that a task's matrix is read from or written to on this rank.
using SegmentOf = std::function<std::span<float>(const MatrixTask& task)>;

// `buffer`: this rank's, empty where it has no chunk in this round.
ExchangePlan PlanGather(const ChunkPlan& plan, size_t round, int32_t rank,
                        const SegmentOf& source, std::span<std::byte> buffer);
ExchangePlan PlanScatter(const ChunkPlan& plan, size_t round, int32_t rank,
                         const SegmentOf& dest, std::span<std::byte> buffer);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_CHUNK_EXCHANGE_H_
