#include "src/kernel/newton_schulz_overlap.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

// Elements that lie side by side.
struct Run {
  const float* begin;
  const float* end;
  size_t job;
};

template <typename T>
void AddRuns(const StridedMatrices<T>& view, size_t job,
             std::vector<Run>& runs) {
  if (view.rows == 0 || view.cols == 0) return;
  const size_t first = runs.size();
  for (int64_t b = 0; b < view.batch; ++b) {
    for (int64_t i = 0; i < view.rows; ++i) {
      const float* row =
          view.data + b * view.batch_stride + i * view.row_stride;
      if (runs.size() > first && runs.back().end == row) {
        runs.back().end += view.cols;
      } else {
        runs.push_back({row, row + view.cols, job});
      }
    }
  }
}

bool SameView(const OrthogonalizeJob& job) {
  const auto& [in, out] = job;
  return in.data == out.data &&
         (in.batch < 2 || in.batch_stride == out.batch_stride) &&
         (in.rows < 2 || in.row_stride == out.row_stride);
}

[[noreturn]] void Refuse(size_t job, const char* what, size_t other) {
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("the output of orthogonalization job ", job, " overlaps ",
                     what, " of job ", other),
              {.expected = "outputs without overlap; an input may be the very "
                           "same view as its own output"});
}

}  // namespace

void RefuseOverlaps(std::span<const OrthogonalizeJob> jobs) {
  std::vector<Run> outputs;
  std::vector<Run> inputs;
  for (size_t j = 0; j < jobs.size(); ++j) {
    AddRuns(jobs[j].out, j, outputs);
    if (!SameView(jobs[j])) AddRuns(jobs[j].in, j, inputs);
  }
  std::sort(outputs.begin(), outputs.end(), [](const Run& a, const Run& b) {
    return std::less<>()(a.begin, b.begin);
  });
  for (size_t i = 1; i < outputs.size(); ++i) {
    if (std::less<>()(outputs[i].begin, outputs[i - 1].end)) {
      Refuse(outputs[i].job, "the output", outputs[i - 1].job);
    }
  }
  // Outputs are apart, so that their ends ascend as their beginnings do.
  for (const Run& input : inputs) {
    const auto output = std::partition_point(
        outputs.begin(), outputs.end(),
        [&](const Run& run) { return !std::less<>()(input.begin, run.end); });
    if (output != outputs.end() && std::less<>()(output->begin, input.end)) {
      Refuse(output->job, "the input", input.job);
    }
  }
}

}  // namespace muonstore
