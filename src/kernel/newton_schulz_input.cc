#include "src/kernel/newton_schulz_input.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/kernel/newton_schulz_overlap.h"

namespace muonstore {
namespace {

constexpr double kCompatEps = 1e-7;
// Published ones are below 30. Far larger ones leave nothing but infinities.
constexpr double kLargestCoefficient = 1e6;
// What one thread sums at a time.
constexpr int64_t kNormElements = 65536;

// Where a matrix comes from, for messages.
struct Origin {
  size_t job;
  int64_t index;  // In the job's batch.
};

// Some rows of a matrix, whose squares are summed.
struct NormTask {
  size_t matrix;
  int64_t row_begin;
  int64_t row_end;
  double sum = 0;
};

[[noreturn]] void ThrowBadView(size_t job, const char* what,
                               std::string expected, std::string found) {
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("orthogonalization job ", job, ": ", what),
              {.expected = std::move(expected), .found = std::move(found)});
}

template <typename T>
void CheckView(size_t job, const StridedMatrices<T>& view) {
  const std::string shape =
      StrCat(view.batch, " of ", view.rows, " x ", view.cols);
  if (view.batch < 0 || view.rows < 0 || view.cols < 0) {
    ThrowBadView(job, "a size is negative", "0 or more", shape);
  }
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max() / 4;
  if (view.cols > 0 && view.rows > kMax / view.cols / 8) {
    ThrowBadView(job, "the matrix is too large", "bytes that fit 64 bits",
                 shape);
  }
  if (view.rows > 1 && view.row_stride < view.cols) {
    ThrowBadView(job, "rows of a matrix overlap",
                 StrCat("a row stride of ", view.cols, " or more"),
                 StrCat(view.row_stride));
  }
  if (view.batch > 1 && view.batch_stride < 0) {
    ThrowBadView(job, "the batch stride is negative", "0 or more",
                 StrCat(view.batch_stride));
  }
  if (view.data == nullptr && view.batch * view.rows * view.cols != 0) {
    ThrowBadView(job, "a matrix has no memory", "a pointer", "null");
  }
}

void CheckJob(size_t index, const OrthogonalizeJob& job) {
  CheckView(index, job.in);
  CheckView(index, job.out);
  if (job.in.batch != job.out.batch || job.in.rows != job.out.rows ||
      job.in.cols != job.out.cols) {
    ThrowBadView(
        index, "input and output differ in shape",
        StrCat(job.in.batch, " of ", job.in.rows, " x ", job.in.cols),
        StrCat(job.out.batch, " of ", job.out.rows, " x ", job.out.cols));
  }
}

[[noreturn]] void ThrowNotFinite(const NewtonSchulzMatrix& matrix,
                                 const Origin& origin) {
  const Block<const float>& in = matrix.in;
  int64_t row = 0;
  int64_t col = 0;
  while (std::isfinite(in.data[row * in.ld + col])) {
    ++col;
    if (col == in.cols) {
      col = 0;
      ++row;
    }
  }
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("matrix ", origin.index, " of orthogonalization job ",
                     origin.job, " is not finite at row ", row, ", column ",
                     col, "; nothing was written"),
              {.expected = "finite elements",
               .found = StrCat(in.data[row * in.ld + col])});
}

void WriteZeros(const Block<float>& out) {
  for (int64_t i = 0; i < out.rows; ++i) {
    std::fill_n(out.data + i * out.ld, out.cols, 0.0F);
  }
}

double ScaleFor(const NewtonSchulzOptions& options, double norm) {
  const double scaled = norm * options.coefficients.norm_factor;
  const bool compat =
      options.normalization == NewtonSchulzNormalization::kCompat;
  return 1.0 / (compat ? scaled + kCompatEps : scaled);
}

// Every matrix that has elements.
void ListMatrices(std::span<const OrthogonalizeJob> jobs,
                  std::vector<NewtonSchulzMatrix>* matrices,
                  std::vector<Origin>* origins) {
  for (size_t j = 0; j < jobs.size(); ++j) {
    CheckJob(j, jobs[j]);
    const auto& [in, out] = jobs[j];
    for (int64_t b = 0; in.rows * in.cols != 0 && b < in.batch; ++b) {
      matrices->push_back({.in = {in.data + b * in.batch_stride, in.row_stride,
                                  in.rows, in.cols},
                           .out = {out.data + b * out.batch_stride,
                                   out.row_stride, out.rows, out.cols}});
      origins->push_back({.job = j, .index = b});
    }
  }
}

// The sums of squares of the matrices. Their order follows from the shape.
std::vector<double> SquaredNorms(
    const std::vector<NewtonSchulzMatrix>& matrices, ThreadPool& pool) {
  std::vector<NormTask> tasks;
  for (size_t i = 0; i < matrices.size(); ++i) {
    const Block<const float>& in = matrices[i].in;
    const int64_t num_rows = std::max<int64_t>(1, kNormElements / in.cols);
    for (int64_t row = 0; row < in.rows; row += num_rows) {
      tasks.push_back({.matrix = i,
                       .row_begin = row,
                       .row_end = std::min(in.rows, row + num_rows)});
    }
  }
  pool.ParallelFor(static_cast<int64_t>(tasks.size()), [&](int64_t item) {
    NormTask& task = tasks[static_cast<size_t>(item)];
    const Block<const float>& in = matrices[task.matrix].in;
    task.sum = SumOfSquares({in.data + task.row_begin * in.ld, in.ld,
                             task.row_end - task.row_begin, in.cols});
  });
  std::vector<double> sums(matrices.size(), 0.0);
  for (const NormTask& task : tasks) {
    sums[task.matrix] += task.sum;
  }
  return sums;
}

}  // namespace

void CheckOptions(const NewtonSchulzOptions& options) {
  const NewtonSchulzCoefficients& coefficients = options.coefficients;
  bool sound = !coefficients.steps.empty() &&
               coefficients.norm_factor >= 1 / kLargestCoefficient &&
               coefficients.norm_factor <= kLargestCoefficient;
  for (const QuinticStep& step : coefficients.steps) {
    for (const double value : {step.a, step.b, step.c}) {
      sound = sound && std::abs(value) <= kLargestCoefficient;
    }
  }
  if (!sound) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("the coefficients '", Printable(coefficients.name),
                       "' of Newton-Schulz make no sense"),
                {.expected = "one or more steps, no value beyond a million and "
                             "a positive norm factor",
                 .found = StrCat(coefficients.steps.size(), " steps, factor ",
                                 coefficients.norm_factor)});
  }
  if (options.form == NewtonSchulzForm::kGram &&
      options.precision == NewtonSchulzPrecision::kBF16) {
    throw Error(ErrorCode::kInvalidArgument,
                "the gram form of Newton-Schulz diverges with bf16 operands; "
                "ask for the standard form or f32");
  }
}

std::vector<NewtonSchulzMatrix> NormalizedMatrices(
    const NewtonSchulzOptions& options, std::span<const OrthogonalizeJob> jobs,
    ThreadPool& pool) {
  std::vector<NewtonSchulzMatrix> matrices;
  std::vector<Origin> origins;
  ListMatrices(jobs, &matrices, &origins);
  RefuseOverlaps(jobs);
  const std::vector<double> sums = SquaredNorms(matrices, pool);
  for (size_t i = 0; i < matrices.size(); ++i) {
    if (!std::isfinite(sums[i])) {
      ThrowNotFinite(matrices[i], origins[i]);
    }
    matrices[i].scale = ScaleFor(options, std::sqrt(sums[i]));
  }
  std::vector<NewtonSchulzMatrix> nonzero;
  for (size_t i = 0; i < matrices.size(); ++i) {
    if (sums[i] == 0) {
      WriteZeros(matrices[i].out);
    } else {
      nonzero.push_back(matrices[i]);
    }
  }
  return nonzero;
}

}  // namespace muonstore
