// What must hold beside precision: the same bits whatever the threads, batches
// and strides; typed errors; nothing written outside of the matrices.
#include "muonstore/newton_schulz.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "muonstore/matrix_layout.h"
#include "tests/kernel/matrices.h"

namespace muonstore {
namespace {

using testing::HasSubstr;

constexpr float kNewtonSchulzGuard = -12345.0F;

// A stack of matrices somewhere inside a larger array full of guards.
struct Placed {
  std::vector<float> memory;
  StridedMatrices<float> view;

  StridedMatrices<const float> const_view() const {
    return {view.data, view.batch,        view.rows,
            view.cols, view.batch_stride, view.row_stride};
  }
  float& at(int64_t b, int64_t i, int64_t j) {
    return view.data[b * view.batch_stride + i * view.row_stride + j];
  }
};

// Matrices of `matrices` with `gap` elements between rows and `between` rows
// between matrices.
Placed Place(const std::vector<FloatMatrix>& matrices, int64_t gap,
             int64_t between) {
  Placed placed;
  const int64_t rows = matrices.front().rows;
  const int64_t cols = matrices.front().cols;
  const auto batch = static_cast<int64_t>(matrices.size());
  const int64_t row_stride = cols + gap;
  const int64_t batch_stride = (rows + between) * row_stride;
  placed.memory.assign(static_cast<size_t>(batch * batch_stride + 3),
                       kNewtonSchulzGuard);
  placed.view = {
      placed.memory.data() + 3, batch, rows, cols, batch_stride, row_stride};
  for (int64_t b = 0; b < batch; ++b) {
    const FloatMatrix& matrix = matrices[static_cast<size_t>(b)];
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        placed.at(b, i, j) = matrix.values[static_cast<size_t>(i * cols + j)];
      }
    }
  }
  return placed;
}

FloatMatrix Extract(Placed& placed, int64_t b) {
  FloatMatrix matrix{"", placed.view.rows, placed.view.cols, {}};
  for (int64_t i = 0; i < matrix.rows; ++i) {
    for (int64_t j = 0; j < matrix.cols; ++j) {
      matrix.values.push_back(placed.at(b, i, j));
    }
  }
  return matrix;
}

int64_t CountGuards(const Placed& placed) {
  return std::count(placed.memory.begin(), placed.memory.end(),
                    kNewtonSchulzGuard);
}

NewtonSchulzOptions BF16Options() {
  return {.precision = NewtonSchulzPrecision::kBF16};
}

void ExpectSameBits(const FloatMatrix& found, const FloatMatrix& expected) {
  ASSERT_EQ(found.values.size(), expected.values.size());
  EXPECT_EQ(std::memcmp(found.values.data(), expected.values.data(),
                        found.values.size() * sizeof(float)),
            0);
}

TEST(NewtonSchulz, BitsDoNotDependOnTheNumberOfThreads) {
  // Sides around the tile and the one-a-thread limits.
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
           {17, 40}, {129, 129}, {300, 410}, {410, 300}, {520, 540}}) {
    const FloatMatrix matrix = Gaussian(rows, cols, 21);
    for (const NewtonSchulzOptions& options : AllPaths()) {
      if (options.coefficients.name != "jordan5") continue;
      SCOPED_TRACE(Describe(options) + " " + std::to_string(rows));
      const FloatMatrix expected = Orthogonalized(matrix, options, 1);
      for (const int num_threads : {2, 3, 5}) {
        ExpectSameBits(Orthogonalized(matrix, options, num_threads), expected);
      }
    }
  }
}

TEST(NewtonSchulz, BitsDoNotDependOnBatchStrideOrPosition) {
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
           {24, 40}, {40, 24}, {33, 33}, {264, 270}}) {
    for (const NewtonSchulzOptions& options : AllPaths()) {
      SCOPED_TRACE(Describe(options) + " " + std::to_string(rows));
      std::vector<FloatMatrix> matrices;
      for (uint64_t seed = 30; seed < 33; ++seed) {
        matrices.push_back(Gaussian(rows, cols, seed));
      }
      Placed placed = Place(matrices, 5, 2);
      const int64_t num_guards = CountGuards(placed);
      ThreadPool pool(3);
      Orthogonalize(placed.const_view(), placed.view, options, pool);
      EXPECT_EQ(CountGuards(placed), num_guards);
      for (int64_t b = 0; b < 3; ++b) {
        ExpectSameBits(
            Extract(placed, b),
            Orthogonalized(matrices[static_cast<size_t>(b)], options, 1));
      }
    }
  }
}

// Some jobs of random shapes, strides and batch sizes.
struct MixedJobs {
  std::vector<std::vector<FloatMatrix>> inputs;  // By job.
  std::vector<Placed> places;
  std::vector<OrthogonalizeJob> jobs;
};

MixedJobs RandomJobs(std::mt19937_64* rng) {
  const auto random = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(*rng);
  };
  constexpr size_t kNumJobs = 4;
  MixedJobs mixed;
  mixed.jobs.reserve(kNumJobs);
  for (size_t job = 0; job < kNumJobs; ++job) {
    const int64_t rows = random(1, job == 0 ? 300 : 70);
    const int64_t cols = random(1, job == 0 ? 300 : 70);
    std::vector<FloatMatrix> matrices;
    for (int64_t b = random(1, 3); b > 0; --b) {
      matrices.push_back(Gaussian(rows, cols, (*rng)()));
    }
    // Moving a Placed keeps its memory where it is.
    mixed.places.push_back(Place(matrices, random(0, 9), random(0, 3)));
    const Placed& placed = mixed.places.back();
    mixed.jobs.push_back({placed.const_view(), placed.view});
    mixed.inputs.push_back(std::move(matrices));
  }
  return mixed;
}

// Property: whatever the shape and the mixture of jobs, each matrix gets the
// result that it gets alone.
TEST(NewtonSchulz, MixedJobsGiveWhatEachMatrixGivesAlone) {
  std::mt19937_64 rng(77);
  for (int round = 0; round < 12; ++round) {
    NewtonSchulzOptions options;
    if (round % 3 == 1) options = BF16Options();
    MixedJobs mixed = RandomJobs(&rng);
    ThreadPool pool(1 + round % 4);
    Orthogonalizer(options, pool).Run(mixed.jobs);
    for (size_t job = 0; job < mixed.jobs.size(); ++job) {
      for (size_t b = 0; b < mixed.inputs[job].size(); ++b) {
        ExpectSameBits(Extract(mixed.places[job], static_cast<int64_t>(b)),
                       Orthogonalized(mixed.inputs[job][b], options, 1));
      }
    }
  }
}

// Every head of an interleaved tensor, in place, through the layout's batches.
TEST(NewtonSchulz, RunsOnInterleavedHeadsInPlace) {
  const MatrixLayout layout = MatrixLayout::InterleavedHeads(3, 2);
  const Shape shape({72, 20});
  const FloatMatrix tensor = Gaussian(72, 20, 40);
  std::vector<float> values = tensor.values;
  std::vector<OrthogonalizeJob> jobs;
  for (const MatrixBatch& batch : layout.Resolve(shape)) {
    float* data = values.data() + batch.offset;
    jobs.push_back({{data, batch.batch, batch.rows, batch.cols,
                     batch.batch_stride, batch.row_stride},
                    {data, batch.batch, batch.rows, batch.cols,
                     batch.batch_stride, batch.row_stride}});
  }
  ThreadPool pool(2);
  Orthogonalizer({}, pool).Run(jobs);
  for (int64_t head = 0; head < 12; ++head) {
    FloatMatrix block{"", 6, 20, {}};
    const auto begin = tensor.values.begin() + head * 120;
    block.values.assign(begin, begin + 120);
    const FloatMatrix found{
        "", 6, 20,
        std::vector<float>(values.begin() + head * 120,
                           values.begin() + (head + 1) * 120)};
    ExpectSameBits(found, Orthogonalized(block, {}, 1));
  }
}

TEST(NewtonSchulz, ATransposedMatrixGivesTheTransposedResult) {
  const FloatMatrix matrix = Gaussian(30, 50, 41);
  FloatMatrix transposed{"", 50, 30, std::vector<float>(1500)};
  for (size_t i = 0; i < 30; ++i) {
    for (size_t j = 0; j < 50; ++j) {
      transposed.values[j * 30 + i] = matrix.values[i * 50 + j];
    }
  }
  const FloatMatrix expected = Orthogonalized(matrix, {}, 1);
  const FloatMatrix found = Orthogonalized(transposed, {}, 1);
  for (size_t i = 0; i < 30; ++i) {
    for (size_t j = 0; j < 50; ++j) {
      // The norms are summed in another order.
      EXPECT_NEAR(found.values[j * 30 + i], expected.values[i * 50 + j], 2e-6);
    }
  }
}

TEST(NewtonSchulz, ZeroGivesZeroAndEmptyStaysEmpty) {
  for (const NewtonSchulzOptions& options : AllPaths()) {
    const FloatMatrix zero = Scaled(Gaussian(5, 7, 1), 0);
    for (const float value : Orthogonalized(zero, options, 1).values) {
      EXPECT_EQ(std::bit_cast<uint32_t>(value), 0U);
    }
    for (const auto& [rows, cols] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {0, 4}, {4, 0}}) {
      EXPECT_TRUE(
          Orthogonalized({"", rows, cols, {}}, options, 2).values.empty());
    }
  }
  ThreadPool pool(2);
  Orthogonalizer({}, pool).Run({});
  Orthogonalize({nullptr, 0, 3, 3, 9, 3}, {nullptr, 0, 3, 3, 9, 3}, {}, pool);
}

// The second job's matrix 2 is not finite at row 4, column 7.
void ExpectNamed(Orthogonalizer& orthogonalizer,
                 const std::vector<OrthogonalizeJob>& jobs) {
  try {
    orthogonalizer.Run(jobs);
    FAIL() << "a matrix that is not finite was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.message(), HasSubstr("matrix 2 of"));
    EXPECT_THAT(error.message(), HasSubstr("job 1"));
    EXPECT_THAT(error.message(), HasSubstr("row 4, column 7"));
  }
}

TEST(NewtonSchulz, ANonFiniteMatrixIsNamedAndNothingIsWritten) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    std::vector<FloatMatrix> matrices(3, Gaussian(6, 9, 50));
    Placed good = Place(matrices, 0, 0);
    matrices[2].values[4 * 9 + 7] = bad;
    Placed placed = Place(matrices, 1, 1);
    const std::vector<float> before = good.memory;
    const std::vector<OrthogonalizeJob> jobs = {
        {good.const_view(), good.view}, {placed.const_view(), placed.view}};
    ThreadPool pool(2);
    Orthogonalizer orthogonalizer({}, pool);
    ExpectNamed(orthogonalizer, jobs);
    EXPECT_EQ(good.memory, before);
    // The same object works on.
    orthogonalizer.Run({jobs.data(), 1});
    ExpectSameBits(Extract(good, 1), Orthogonalized(Gaussian(6, 9, 50), {}, 1));
  }
}

void ExpectRefused(const OrthogonalizeJob& job, const std::string& what) {
  ThreadPool pool(1);
  Orthogonalizer orthogonalizer({}, pool);
  try {
    orthogonalizer.Run({&job, 1});
    ADD_FAILURE() << "accepted: " << what;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr(what));
  }
}

TEST(NewtonSchulz, BadViewsAreRefused) {
  std::vector<float> memory(100, 1.0F);
  float* data = memory.data();
  const StridedMatrices<const float> in = {data, 2, 4, 5, 20, 5};
  const StridedMatrices<float> out = {data, 2, 4, 5, 20, 5};
  ExpectRefused({in, {data, 2, 5, 4, 20, 5}}, "differ in shape");
  ExpectRefused({in, {data, 1, 4, 5, 20, 5}}, "differ in shape");
  ExpectRefused({{data, 2, 4, 5, 20, 4}, out}, "rows of a matrix overlap");
  ExpectRefused({{data, 2, -4, 5, 20, 5}, out}, "negative");
  ExpectRefused({{data, 2, 4, 5, -20, 5}, out}, "negative");
  ExpectRefused({{nullptr, 2, 4, 5, 20, 5}, out}, "no memory");
  const int64_t huge = int64_t{1} << 40;
  ExpectRefused(
      {{data, 1, huge, huge, 0, huge}, {data, 1, huge, huge, 0, huge}},
      "too large");
}

void ExpectOverlap(const std::vector<OrthogonalizeJob>& jobs,
                   const std::string& what) {
  ThreadPool pool(1);
  Orthogonalizer orthogonalizer({}, pool);
  try {
    orthogonalizer.Run(jobs);
    ADD_FAILURE() << "accepted: " << what;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr(what));
  }
}

TEST(NewtonSchulz, OverlappingOutputsAreRefused) {
  std::vector<float> memory(400, 1.0F);
  float* data = memory.data();
  float* other = data + 200;
  const StridedMatrices<const float> in = {data, 1, 4, 5, 0, 5};
  // Matrices of one batch, by one element and by all of them.
  ExpectOverlap({{{data, 2, 4, 5, 20, 5}, {other, 2, 4, 5, 19, 5}}},
                "job 0 overlaps the output of job 0");
  ExpectOverlap({{{data, 2, 4, 5, 20, 5}, {other, 2, 4, 5, 0, 5}}},
                "job 0 overlaps the output of job 0");
  // Interleaved rows that meet.
  ExpectOverlap({{{data, 2, 4, 5, 20, 5}, {other, 2, 4, 5, 14, 10}}},
                "job 0 overlaps the output of job 0");
  ExpectOverlap(
      {{in, {other, 1, 4, 5, 0, 5}}, {in, {other + 19, 1, 4, 5, 0, 5}}},
      "job 1 overlaps the output of job 0");
  // Its own input, moved by one element, and the input of another job.
  ExpectOverlap({{in, {data + 1, 1, 4, 5, 0, 5}}},
                "job 0 overlaps the input of job 0");
  ExpectOverlap({{in, {other, 1, 4, 5, 0, 5}},
                 {{other + 40, 1, 4, 5, 0, 5}, {data + 15, 1, 4, 5, 0, 5}}},
                "job 1 overlaps the input of job 0");
}

TEST(NewtonSchulz, WhatLiesBetweenOneAnotherIsNoOverlap) {
  std::vector<float> memory(400, 1.0F);
  float* data = memory.data();
  ThreadPool pool(1);
  const auto runs = [&](const std::vector<OrthogonalizeJob>& jobs) {
    Orthogonalizer({}, pool).Run(jobs);
  };
  // Heads side by side, rows between rows, an input that two jobs share.
  runs({{{data, 2, 4, 5, 5, 10}, {data, 2, 4, 5, 5, 10}}});
  const StridedMatrices<const float> in = {data, 1, 4, 5, 0, 5};
  runs(
      {{in, {data + 200, 1, 4, 5, 0, 10}}, {in, {data + 205, 1, 4, 5, 0, 10}}});
  runs({{in, {data + 20, 1, 4, 5, 0, 5}},
        {{data + 40, 1, 4, 5, 0, 5}, {data + 60, 1, 4, 5, 0, 5}}});
}

TEST(NewtonSchulz, BadOptionsAreRefused) {
  ThreadPool pool(1);
  NewtonSchulzOptions gram_bf16 = BF16Options();
  gram_bf16.form = NewtonSchulzForm::kGram;
  EXPECT_THROW(Orthogonalizer(gram_bf16, pool), Error);
  NewtonSchulzOptions no_steps;
  no_steps.coefficients.steps.clear();
  EXPECT_THROW(Orthogonalizer(no_steps, pool), Error);
  NewtonSchulzOptions bad_step;
  bad_step.coefficients.steps[2].b = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(Orthogonalizer(bad_step, pool), Error);
  for (const double absurd : {1e300, -1e300}) {
    NewtonSchulzOptions huge_step;
    huge_step.coefficients.steps[0].c = absurd;
    EXPECT_THROW(Orthogonalizer(huge_step, pool), Error);
  }
  for (const double factor :
       {0.0, -1.0, 1e-300, 1e300, std::numeric_limits<double>::infinity()}) {
    NewtonSchulzOptions bad_factor;
    bad_factor.coefficients.norm_factor = factor;
    EXPECT_THROW(Orthogonalizer(bad_factor, pool), Error);
  }
}

// Any number of steps, also one and two, which the gram form treats apart.
TEST(NewtonSchulz, RunsAnyNumberOfSteps) {
  const FloatMatrix matrix = Gaussian(50, 90, 60);
  for (size_t num_steps = 1; num_steps <= 8; ++num_steps) {
    for (NewtonSchulzOptions options : AllPaths()) {
      options.coefficients.steps.resize(num_steps,
                                        options.coefficients.steps.back());
      const bool bf16 = options.precision == NewtonSchulzPrecision::kBF16;
      EXPECT_LE(oracle::RelativeError(Widen(Orthogonalized(matrix, options, 2)),
                                      OracleNewtonSchulz(matrix, options)),
                bf16 ? 0.06 : 1e-4)
          << Describe(options) << " " << num_steps;
    }
  }
}

TEST(NewtonSchulz, WorkspaceIsBoundedReportedAndReleased) {
  for (const NewtonSchulzOptions& options : AllPaths()) {
    for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
             {20, 30}, {300, 200}, {530, 540}}) {
      ThreadPool pool(2);
      Orthogonalizer orthogonalizer(options, pool);
      EXPECT_EQ(orthogonalizer.workspace_bytes(), 0);
      std::vector<FloatMatrix> matrices(4, Gaussian(rows, cols, 61));
      Placed placed = Place(matrices, 0, 0);
      const OrthogonalizeJob job = {placed.const_view(), placed.view};
      orthogonalizer.Run({&job, 1});
      EXPECT_GT(orthogonalizer.workspace_bytes(), 0);
      EXPECT_LE(orthogonalizer.workspace_bytes(),
                orthogonalizer.WorkspaceBytes(rows, cols));
      orthogonalizer.ReleaseWorkspace();
      EXPECT_EQ(orthogonalizer.workspace_bytes(), 0);
    }
  }
}

TEST(NewtonSchulz, AutoNamesTheFormThatRuns) {
  EXPECT_EQ(ChooseForm({}, 1024, 4096), NewtonSchulzForm::kGram);
  EXPECT_EQ(ChooseForm({}, 4096, 1024), NewtonSchulzForm::kGram);
  EXPECT_EQ(ChooseForm({}, 1024, 1024), NewtonSchulzForm::kStandard);
  // Whatever the processor.
  EXPECT_EQ(ChooseForm(BF16Options(), 1024, 1024), NewtonSchulzForm::kStandard);
  EXPECT_EQ(ChooseForm(BF16Options(), 128, 4096), NewtonSchulzForm::kGram);
  NewtonSchulzOptions standard;
  standard.form = NewtonSchulzForm::kStandard;
  EXPECT_EQ(ChooseForm(standard, 128, 4096), NewtonSchulzForm::kStandard);
}

TEST(NewtonSchulz, BF16RunsAsF32OnlyWhereTheProcessorHasNoBF16) {
  const FloatMatrix matrix = Gaussian(64, 96, 62);
  NewtonSchulzOptions f32;
  f32.form = NewtonSchulzForm::kStandard;
  NewtonSchulzOptions bf16 = f32;
  bf16.precision = NewtonSchulzPrecision::kBF16;
  const bool same = Orthogonalized(matrix, bf16, 1).values ==
                    Orthogonalized(matrix, f32, 1).values;
  const bool said = MatrixProductName().ends_with("(bf16 class runs in f32)");
  EXPECT_EQ(same, said) << MatrixProductName();
}

// Half the work, up to the tiles on the diagonal.
TEST(NewtonSchulz, FlopsAreThoseOfHalfWorkProducts) {
  NewtonSchulzOptions standard;
  standard.form = NewtonSchulzForm::kStandard;
  NewtonSchulzOptions gram;
  gram.form = NewtonSchulzForm::kGram;
  const double n = 4096;
  const double m = 14336;
  EXPECT_NEAR(OrthogonalizeFlops(standard, 4096, 14336) /
                  (15 * n * n * m + 5 * n * n * n),
              1.0, 0.08);
  EXPECT_NEAR(
      OrthogonalizeFlops(gram, 14336, 4096) / (3 * n * n * m + 19 * n * n * n),
      1.0, 0.08);
  EXPECT_EQ(OrthogonalizeFlops(standard, 0, 5), 0);
  EXPECT_THROW(OrthogonalizeFlops(standard, -1, 5), Error);
}

TEST(NewtonSchulz, CoefficientsAreAsPublished) {
  const NewtonSchulzCoefficients jordan = NewtonSchulzCoefficients::Jordan5();
  EXPECT_EQ(jordan.steps.size(), 5U);
  EXPECT_EQ(jordan.norm_factor, 1.0);
  const NewtonSchulzCoefficients polar =
      NewtonSchulzCoefficients::PolarExpress5();
  EXPECT_EQ(polar.steps.size(), 5U);
  // What the sets do to single values (a 1 x 1 matrix has s = 1 / factor).
  const auto map = [](const NewtonSchulzCoefficients& set, double s) {
    for (const auto& [a, b, c] : set.steps) {
      s = s * (a + s * s * (b + s * s * c));
    }
    return s;
  };
  double least = 2;
  double most = 0;
  for (double s = 0.005; s <= 1 / polar.norm_factor; s += 1e-4) {
    least = std::min(least, map(polar, s));
    most = std::max(most, map(polar, s));
  }
  EXPECT_NEAR(least, 0.859, 0.001);
  EXPECT_NEAR(most, 1.141, 0.001);
  EXPECT_NEAR(map(jordan, 1.0), 0.7, 0.02);
}

TEST(NewtonSchulz, NamesItsMatrixProduct) {
  EXPECT_THAT(MatrixProductName(), HasSubstr("oneDNN"));
}

}  // namespace
}  // namespace muonstore
