#include "src/executor/chunk_plan.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

uint64_t BytesOf(const MatrixTask& task) {
  return static_cast<uint64_t>(task.num_elements()) * sizeof(float);
}

// The largest matrix that has to be gathered, or null.
const MatrixTask* Largest(const ChunkPlan& plan, bool in_place) {
  const MatrixTask* largest = nullptr;
  for (const MatrixTask& task : plan.tasks) {
    if (in_place && task.in_place()) continue;
    if (largest == nullptr || BytesOf(task) > BytesOf(*largest)) {
      largest = &task;
    }
  }
  return largest;
}

// Three buffers let a round's gather and the last one's scatter run beside the
// computation; an accelerator that lags a round behind needs one more.
void ChooseBuffers(const ChunkPlanOptions& options, const MatrixTask& largest,
                   std::span<const ParameterSpec> parameters, ChunkPlan& plan) {
  const uint64_t matrix_bytes = BytesOf(largest);
  const uint64_t limit = options.max_gather_bytes != 0
                             ? options.max_gather_bytes
                             : std::max(kDefaultGatherBytes, 2 * matrix_bytes);
  if (matrix_bytes > limit) {
    throw Error(
        ErrorCode::kResourceExhausted,
        StrCat("a matrix of ", largest.rows, " x ", largest.cols,
               " does not fit into the gather buffers; raise "
               "ExecutorOptions::max_gather_bytes"),
        {.tensor = parameters[static_cast<size_t>(largest.parameter)].name,
         .expected = StrCat("at most ", limit, " bytes"),
         .found = StrCat(matrix_bytes)});
  }
  const auto wanted =
      static_cast<uint64_t>(options.overlap ? (options.in_place ? 3 : 4) : 1);
  plan.buffer_bytes =
      std::max(matrix_bytes, std::min(limit / wanted, options.chunk_bytes));
  plan.num_buffers =
      static_cast<int32_t>(std::min(wanted, limit / plan.buffer_bytes));
  // An accelerator's batch and the next one's gather need a buffer each.
  plan.overlap =
      options.overlap && plan.num_buffers >= (options.in_place ? 2 : 3);
}

void AppendToChunks(const MatrixTask& task, size_t index, uint64_t buffer_bytes,
                    std::vector<Chunk>& chunks) {
  if (chunks.empty() || chunks.back().rows != task.rows ||
      chunks.back().cols != task.cols ||
      chunks.back().bytes() + BytesOf(task) > buffer_bytes) {
    chunks.push_back({.rows = task.rows, .cols = task.cols});
  }
  chunks.back().tasks.push_back(index);
}

}  // namespace

std::vector<size_t> ChunkPlan::TasksOfRound(size_t round) const {
  std::vector<size_t> all;
  for (size_t rank = 0; rank < chunks.size(); ++rank) {
    const Chunk* of_rank = chunk(static_cast<int32_t>(rank), round);
    if (of_rank == nullptr) continue;
    all.insert(all.end(), of_rank->tasks.begin(), of_rank->tasks.end());
  }
  return all;
}

ChunkPlan PlanChunks(std::vector<MatrixTask> tasks,
                     std::span<const ParameterSpec> parameters,
                     const ChunkPlanOptions& options) {
  ChunkPlan plan;
  plan.tasks = std::move(tasks);
  plan.in_place.resize(static_cast<size_t>(options.num_ranks));
  plan.chunks.resize(static_cast<size_t>(options.num_ranks));
  plan.overlap = options.overlap;
  const MatrixTask* largest = Largest(plan, options.in_place);
  if (largest != nullptr) ChooseBuffers(options, *largest, parameters, plan);

  std::vector<size_t> order;
  for (size_t i = 0; i < plan.tasks.size(); ++i) {
    const MatrixTask& task = plan.tasks[i];
    if (options.in_place && task.in_place()) {
      plan.in_place[static_cast<size_t>(task.owner)].push_back(i);
    } else {
      order.push_back(i);
    }
  }
  // The dearest first, so that the ranks' rounds cost about the same.
  std::stable_sort(order.begin(), order.end(), [&plan](size_t a, size_t b) {
    const auto key = [&plan](size_t i) {
      const MatrixTask& task = plan.tasks[i];
      return std::tuple(-task.flops, task.rows, task.cols);
    };
    return key(a) < key(b);
  });
  for (const size_t i : order) {
    const auto owner = static_cast<size_t>(plan.tasks[i].owner);
    AppendToChunks(plan.tasks[i], i, plan.buffer_bytes, plan.chunks[owner]);
  }
  for (const auto& of_rank : plan.chunks) {
    plan.num_rounds = std::max(plan.num_rounds, of_rank.size());
  }
  return plan;
}

}  // namespace muonstore
