#include "src/executor/matrix_task.h"

#include <algorithm>
#include <numeric>

#include "muonstore/copy_plan.h"

namespace muonstore {
namespace {

// The elements of a matrix, dense in segment 0.
Fragment DenseFragment(const MatrixBatch& batch, int64_t index) {
  const int64_t block_rows =
      batch.block_rows == 0 ? batch.rows : batch.block_rows;
  const int64_t blocks = batch.rows / block_rows;
  // Layouts are made of full rows, so that a block is one run.
  return {.tensor_offset = batch.row_offset(index, 0),
          .length = block_rows * batch.cols,
          .count = blocks,
          .stride = blocks > 1 ? batch.block_stride : 0};
}

std::vector<MatrixPiece> PiecesOf(std::span<const Fragment> fragments,
                                  const Fragment& matrix,
                                  int32_t num_flat_groups) {
  std::vector<MatrixPiece> pieces;
  for (const CopyOp& op : PlanCopy(fragments, {&matrix, 1})) {
    for (int64_t i = 0; i < op.count; ++i) {
      pieces.push_back(
          {.rank = op.source_segment / num_flat_groups,
           .segment_offset = op.source_offset + i * op.source_stride,
           .matrix_offset = op.dest_offset + i * op.dest_stride,
           .length = op.length});
    }
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const MatrixPiece& a, const MatrixPiece& b) {
              return a.matrix_offset < b.matrix_offset;
            });
  return pieces;
}

void AppendTasks(const ParameterSpec& parameter, int32_t index,
                 const Partitioning& partitioning,
                 const NewtonSchulzOptions& options,
                 std::vector<MatrixTask>& tasks) {
  const auto num_flat_groups =
      static_cast<int32_t>(partitioning.groups().size());
  const std::vector<Fragment> fragments = partitioning.fragments(index);
  for (const MatrixBatch& batch : parameter.layout.Resolve(parameter.shape)) {
    const double flops = OrthogonalizeFlops(options, batch.rows, batch.cols);
    for (int64_t b = 0; b < batch.batch; ++b) {
      tasks.push_back({.parameter = index,
                       .group = parameter.group,
                       .flat_group = partitioning.flat_group_of(index),
                       .rows = batch.rows,
                       .cols = batch.cols,
                       .flops = flops,
                       .pieces = PiecesOf(fragments, DenseFragment(batch, b),
                                          num_flat_groups)});
    }
  }
}

// Gathering a matrix costs much less than orthogonalizing it, so that a rank
// keeps what it holds only while it has about its share of the work.
void ChooseOwners(int32_t num_ranks, std::vector<MatrixTask>& tasks) {
  std::vector<size_t> order(tasks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&tasks](size_t a, size_t b) {
    return tasks[a].flops > tasks[b].flops;
  });
  double total = 0;
  for (const MatrixTask& task : tasks) total += task.flops;
  const double share = total / num_ranks * 1.03;
  std::vector<double> load(static_cast<size_t>(num_ranks), 0);
  for (const size_t i : order) {
    MatrixTask& task = tasks[i];
    const auto least = std::min_element(load.begin(), load.end());
    task.owner = static_cast<int32_t>(least - load.begin());
    if (task.whole()) {
      const int32_t home = task.pieces.front().rank;
      if (load[static_cast<size_t>(home)] + task.flops <= share) {
        task.owner = home;
      }
    }
    load[static_cast<size_t>(task.owner)] += task.flops;
  }
}

}  // namespace

std::vector<MatrixTask> MakeMatrixTasks(
    std::span<const ParameterSpec> parameters, const Partitioning& partitioning,
    const NewtonSchulzOptions& options) {
  std::vector<MatrixTask> tasks;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].optimizer == Optimizer::kMuon) {
      AppendTasks(parameters[i], static_cast<int32_t>(i), partitioning, options,
                  tasks);
    }
  }
  ChooseOwners(partitioning.num_ranks(), tasks);
  return tasks;
}

}  // namespace muonstore
