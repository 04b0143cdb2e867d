#include "src/inspect/stats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/inspect/real_dtype.h"
#include "src/state/recorded_layout.h"
#include "src/state/tensor_index.h"

namespace muonstore {
namespace {

constexpr std::array<std::pair<MatrixFlag, std::string_view>, 5> kFlagNames = {{
    {MatrixFlag::kMissing, "missing"},
    {MatrixFlag::kNonFinite, "nonfinite"},
    {MatrixFlag::kZero, "zero"},
    {MatrixFlag::kIdentical, "identical"},
    {MatrixFlag::kDenormal, "denormal"},
}};

// One matrix to work on, with its place in the results.
struct Task {
  size_t tensor;
  MatrixView view;
  int64_t matrix;
  int64_t num_matrices;
};

void AppendTasks(const Checkpoint& checkpoint, size_t tensor,
                 const MatrixLayout& layout, std::vector<Task>& tasks) {
  const CheckpointTensor& info = checkpoint.tensors()[tensor];
  const size_t first = tasks.size();
  try {
    for (const MatrixBatch& batch : layout.Resolve(info.shape)) {
      for (int64_t b = 0; b < batch.batch; ++b) {
        tasks.push_back({.tensor = tensor,
                         .view = MatrixView::Of(batch, b),
                         .matrix = static_cast<int64_t>(tasks.size() - first),
                         .num_matrices = 0});
      }
    }
  } catch (const Error& error) {
    throw error.WithTensor(info.key.ToString());
  }
  for (size_t i = first; i < tasks.size(); ++i) {
    tasks[i].num_matrices = static_cast<int64_t>(tasks.size() - first);
  }
}

void AddFlags(MatrixReport& report) {
  const MatrixStats& stats = *report.stats;
  const int64_t num_nonzero =
      stats.num_elements() - stats.num_zero - stats.num_nonfinite;
  if (stats.num_nonfinite > 0) report.flags.push_back(MatrixFlag::kNonFinite);
  if (stats.num_elements() > 0 && stats.num_zero == stats.num_elements()) {
    report.flags.push_back(MatrixFlag::kZero);
  }
  if (2 * stats.num_denormal > num_nonzero) {
    report.flags.push_back(MatrixFlag::kDenormal);
  }
}

// Computes reports; one instance serves all threads.
class StatsRun {
 public:
  StatsRun(const Checkpoint& checkpoint, const StatsRequest& request)
      : checkpoint_(checkpoint), request_(request), index_(checkpoint) {
    if (request.other != nullptr) other_index_.emplace(*request.other);
  }

  MatrixReport Compute(const Task& task) const {
    const CheckpointTensor& tensor = checkpoint_.tensors()[task.tensor];
    MatrixReport report;
    report.key = tensor.key;
    report.dtype = tensor.dtype;
    report.matrix = task.matrix;
    report.num_matrices = task.num_matrices;
    report.view = task.view;
    MatrixReader reader(checkpoint_, task.tensor, task.view);
    if (reader.incomplete()) {
      report.flags.push_back(MatrixFlag::kMissing);
      report.note = "elements are missing";
      return report;
    }
    if (!IsReal(tensor.dtype)) {
      report.note = StrCat("no statistics of ", DTypeName(tensor.dtype));
      return report;
    }
    report.stats = ComputeMatrixStats(reader, request_.num_singular_values);
    AddFlags(report);
    AddRatio(tensor, report);
    if (other_index_) AddComparison(tensor, reader, report);
    std::sort(report.flags.begin(), report.flags.end());
    return report;
  }

 private:
  void AddRatio(const CheckpointTensor& tensor, MatrixReport& report) const {
    if (tensor.key.kind == kMaster) return;
    const auto index =
        index_.Find({tensor.key.parameter, std::string(kMaster)});
    if (!index || checkpoint_.tensors()[*index].shape != tensor.shape) return;
    MatrixReader master(checkpoint_, *index, report.view);
    if (master.incomplete()) return;
    const double norm = BasicStats(master).frobenius;
    if (norm > 0) report.ratio_to_master = report.stats->frobenius / norm;
  }

  void AddComparison(const CheckpointTensor& tensor, MatrixReader& reader,
                     MatrixReport& report) const {
    const auto index = other_index_->Find(tensor.key);
    if (!index) {
      report.note = "not in the other checkpoint";
      return;
    }
    const CheckpointTensor& other = request_.other->tensors()[*index];
    if (other.shape != tensor.shape || !IsReal(other.dtype)) {
      report.note = StrCat("the other checkpoint has ", DTypeName(other.dtype),
                           " ", other.shape.ToString());
      return;
    }
    MatrixReader other_reader(*request_.other, *index, report.view);
    if (other_reader.incomplete()) {
      report.note = "elements are missing in the other checkpoint";
      return;
    }
    const MatrixComparison comparison = CompareMatrices(reader, other_reader);
    report.cosine = comparison.cosine;
    report.norm_ratio = comparison.norm_ratio;
    if (comparison.identical) report.flags.push_back(MatrixFlag::kIdentical);
  }

  const Checkpoint& checkpoint_;
  const StatsRequest& request_;
  TensorIndex index_;
  std::optional<TensorIndex> other_index_;
};

uint64_t TaskBytes(const Checkpoint& checkpoint, const Task& task) {
  return static_cast<uint64_t>(
      task.view.num_elements() *
      SizeBytes(checkpoint.tensors()[task.tensor].dtype));
}

// How far norms may lie apart before size alone is alarming. Layers of one
// model differ; a layer and itself some steps before hardly do.
constexpr double kMaxFactorOfMedian = 10;
constexpr double kMaxFactorOfOther = 2;
constexpr size_t kMinRatiosForMedian = 3;

// NaN where there is no logarithm.
double LogOf(const std::optional<double>& ratio) {
  return ratio && *ratio > 0 && std::isfinite(*ratio)
             ? std::log(*ratio)
             : std::numeric_limits<double>::quiet_NaN();
}

// Of the ratios to the masters; NaN where they are too few to tell.
double MedianLogRatio(const std::vector<MatrixReport>& reports) {
  std::vector<double> logs;
  for (const MatrixReport& report : reports) {
    const double log = LogOf(report.ratio_to_master);
    if (!std::isnan(log)) logs.push_back(log);
  }
  if (logs.size() < kMinRatiosForMedian) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  std::sort(logs.begin(), logs.end());
  const size_t half = logs.size() / 2;
  return logs.size() % 2 == 1 ? logs[half] : (logs[half - 1] + logs[half]) / 2;
}

// The distance of a logarithm where it is more than the factor; 0 otherwise,
// and for NaN.
double Excess(double log, double factor) {
  return std::abs(log) > std::log(factor) ? std::abs(log) : 0;
}

// Sorts before: a smaller tuple is worse.
using Badness = std::tuple<int, double, double, double, double>;

Badness BadnessOf(const MatrixReport& report, double median_log_ratio) {
  const int alarm = report.flags.empty()
                        ? static_cast<int>(kFlagNames.size())
                        : static_cast<int>(report.flags.front());
  double spread = std::numeric_limits<double>::infinity();
  if (report.stats && report.stats->stable_rank) {
    const int64_t side = std::min(report.stats->rows, report.stats->cols);
    spread = *report.stats->stable_rank / static_cast<double>(side);
  }
  return {alarm, -Excess(LogOf(report.norm_ratio), kMaxFactorOfOther),
          -Excess(LogOf(report.ratio_to_master) - median_log_ratio,
                  kMaxFactorOfMedian),
          spread, -report.ratio_to_master.value_or(0)};
}

}  // namespace

std::string_view MatrixFlagName(MatrixFlag flag) {
  return kFlagNames[static_cast<size_t>(flag)].second;
}

std::optional<MatrixFlag> ParseMatrixFlag(std::string_view name) {
  for (const auto& [flag, text] : kFlagNames) {
    if (text == name) return flag;
  }
  return std::nullopt;
}

bool MatrixReport::Has(MatrixFlag flag) const {
  return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

std::vector<MatrixReport> ComputeStats(const Checkpoint& checkpoint,
                                       const StatsRequest& request) {
  std::vector<Task> tasks;
  for (const size_t tensor : request.tensors) {
    AppendTasks(
        checkpoint, tensor,
        request.layout
            ? *request.layout
            : RecordedLayout(checkpoint.info(),
                             checkpoint.tensors()[tensor].key.parameter),
        tasks);
  }
  uint64_t total_bytes = 0;
  for (const Task& task : tasks) total_bytes += TaskBytes(checkpoint, task);
  ByteProgress progress(request.progress, total_bytes);
  const StatsRun run(checkpoint, request);
  std::vector<MatrixReport> reports(tasks.size());
  ParallelFor(tasks.size(), request.jobs, [&](size_t i) {
    reports[i] = run.Compute(tasks[i]);
    progress.Add(TaskBytes(checkpoint, tasks[i]));
  });
  return reports;
}

void SortWorstFirst(std::vector<MatrixReport>& reports) {
  const double median = MedianLogRatio(reports);
  std::stable_sort(reports.begin(), reports.end(),
                   [&](const MatrixReport& a, const MatrixReport& b) {
                     return BadnessOf(a, median) < BadnessOf(b, median);
                   });
}

}  // namespace muonstore
