// The matrices of a store's Muon parameters: where they lie, who works on them.
//
// What: every matrix of every layout is one task with one owner over all ranks.
//   Owners are chosen by cost: the dearest matrix first, to the rank with the
//   least work, or to the one that holds all of it if that costs little.
// Threads: pure functions; every rank computes the same tasks.

#ifndef MUONSTORE_SRC_EXECUTOR_MATRIX_TASK_H_
#define MUONSTORE_SRC_EXECUTOR_MATRIX_TASK_H_

#include <cstdint>
#include <span>
#include <vector>

#include "muonstore/newton_schulz.h"
#include "muonstore/parameter.h"
#include "muonstore/partitioning.h"

namespace muonstore {

// A run of a matrix's elements (row-major, dense) and where they lie.
struct MatrixPiece {
  int32_t rank = 0;
  int64_t segment_offset = 0;  // In the rank's segment of the flat group.
  int64_t matrix_offset = 0;
  int64_t length = 0;
};

struct MatrixTask {
  int32_t parameter = 0;
  int32_t group = 0;  // Param group.
  int32_t flat_group = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  double flops = 0;
  int32_t owner = 0;
  // Ascending by matrix_offset; they cover the matrix once.
  std::vector<MatrixPiece> pieces;

  int64_t num_elements() const { return rows * cols; }
  // One rank holds the matrix as a dense run.
  bool whole() const { return pieces.size() == 1; }
  // The owner works on it where it lies.
  bool in_place() const { return whole() && pieces.front().rank == owner; }
};

// All tasks, by parameter and by position in its layout.
std::vector<MatrixTask> MakeMatrixTasks(
    std::span<const ParameterSpec> parameters, const Partitioning& partitioning,
    const NewtonSchulzOptions& options);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_MATRIX_TASK_H_
