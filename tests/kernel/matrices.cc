#include "tests/kernel/matrices.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

namespace muonstore {
namespace {

// `count` orthonormal vectors of length `size`, one a row.
oracle::Matrix Orthonormal(int64_t count, int64_t size, std::mt19937_64* rng) {
  std::normal_distribution<double> normal;
  oracle::Matrix basis{count, size,
                       std::vector<double>(static_cast<size_t>(count * size))};
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < size; ++j) basis.at(i, j) = normal(*rng);
    // Twice, so that what rounding leaves is gone.
    for (int64_t other = 0; other < 2 * i; ++other) {
      double dot = 0;
      for (int64_t j = 0; j < size; ++j) {
        dot += basis.at(i, j) * basis.at(other % i, j);
      }
      for (int64_t j = 0; j < size; ++j) {
        basis.at(i, j) -= dot * basis.at(other % i, j);
      }
    }
    double squares = 0;
    for (int64_t j = 0; j < size; ++j) {
      squares += basis.at(i, j) * basis.at(i, j);
    }
    for (int64_t j = 0; j < size; ++j) basis.at(i, j) /= std::sqrt(squares);
  }
  return basis;
}

// From 1 down to 1 / condition, equally spaced in the logarithm.
std::vector<double> LogSpaced(int64_t count, double condition) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    const double part = static_cast<double>(i) /
                        static_cast<double>(std::max<int64_t>(count - 1, 1));
    values.push_back(std::pow(condition, -part));
  }
  return values;
}

FloatMatrix Named(std::string name, FloatMatrix matrix) {
  matrix.name = std::move(name);
  return matrix;
}

FloatMatrix OfRank(int64_t rank, int64_t rows, int64_t cols) {
  std::vector<double> values(static_cast<size_t>(std::min(rows, cols)), 0.0);
  std::fill_n(values.begin(),
              std::min(static_cast<size_t>(rank), values.size()), 1.0);
  return WithSingularValues(rows, cols, values, 7);
}

}  // namespace

FloatMatrix Gaussian(int64_t rows, int64_t cols, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  FloatMatrix matrix{"gaussian", rows, cols,
                     std::vector<float>(static_cast<size_t>(rows * cols))};
  for (float& value : matrix.values) value = normal(rng);
  return matrix;
}

FloatMatrix WithSingularValues(int64_t rows, int64_t cols,
                               const std::vector<double>& singular_values,
                               uint64_t seed) {
  std::mt19937_64 rng(seed);
  const auto count = static_cast<int64_t>(singular_values.size());
  const oracle::Matrix left = Orthonormal(count, rows, &rng);
  oracle::Matrix right = Orthonormal(count, cols, &rng);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      right.at(i, j) *= singular_values[static_cast<size_t>(i)];
    }
  }
  const oracle::Matrix product =
      oracle::Product(oracle::Transpose(left), right);
  return {"singular values", rows, cols,
          std::vector<float>(product.values.begin(), product.values.end())};
}

FloatMatrix Scaled(FloatMatrix matrix, double factor) {
  for (float& value : matrix.values) {
    value = static_cast<float>(value * factor);
  }
  return matrix;
}

std::vector<FloatMatrix> HardMatrices(int64_t rows, int64_t cols) {
  const int64_t n = std::min(rows, cols);
  std::vector<double> spike(static_cast<size_t>(n), 1e-3);
  spike.front() = 1;
  FloatMatrix ones = Gaussian(rows, cols, 1);
  std::fill(ones.values.begin(), ones.values.end(), 1.0F);
  FloatMatrix zero_row = Gaussian(rows, cols, 2);
  std::fill_n(zero_row.values.begin(), cols, 0.0F);
  FloatMatrix zero_col = Gaussian(rows, cols, 3);
  for (int64_t i = 0; i < rows; ++i) {
    zero_col.values[static_cast<size_t>(i * cols)] = 0;
  }
  FloatMatrix one_element = Scaled(ones, 0);
  one_element.values.back() = -3;
  return {
      Named("rank 1", OfRank(1, rows, cols)),
      Named("rank 4", OfRank(4, rows, cols)),
      Named("spike", WithSingularValues(rows, cols, spike, 8)),
      Named("ones", ones),
      Named("condition 1e2",
            WithSingularValues(rows, cols, LogSpaced(n, 1e2), 9)),
      Named("condition 1e4",
            WithSingularValues(rows, cols, LogSpaced(n, 1e4), 10)),
      Named("condition 1e6",
            WithSingularValues(rows, cols, LogSpaced(n, 1e6), 11)),
      Named("zero row", zero_row),
      Named("zero column", zero_col),
      Named("one element", one_element),
  };
}

oracle::Matrix Widen(const FloatMatrix& matrix) {
  return {matrix.rows, matrix.cols,
          std::vector<double>(matrix.values.begin(), matrix.values.end())};
}

oracle::Matrix OracleNewtonSchulz(const FloatMatrix& matrix,
                                  const NewtonSchulzOptions& options) {
  std::vector<std::array<double, 3>> steps;
  for (const QuinticStep& step : options.coefficients.steps) {
    steps.push_back({step.a, step.b, step.c});
  }
  const bool compat =
      options.normalization == NewtonSchulzNormalization::kCompat;
  return oracle::NewtonSchulz(Widen(matrix), steps,
                              options.coefficients.norm_factor,
                              compat ? 1e-7 : 0.0);
}

FloatMatrix Orthogonalized(const FloatMatrix& matrix,
                           const NewtonSchulzOptions& options,
                           int num_threads) {
  ThreadPool pool(num_threads);
  FloatMatrix out = matrix;
  const int64_t size = matrix.rows * matrix.cols;
  Orthogonalize(
      {matrix.values.data(), 1, matrix.rows, matrix.cols, size, matrix.cols},
      {out.values.data(), 1, matrix.rows, matrix.cols, size, matrix.cols},
      options, pool);
  return out;
}

std::string Describe(const NewtonSchulzOptions& options) {
  const bool gram = options.form == NewtonSchulzForm::kGram;
  const bool bf16 = options.precision == NewtonSchulzPrecision::kBF16;
  return std::string(gram ? "gram " : "standard ") + (bf16 ? "bf16 " : "f32 ") +
         options.coefficients.name;
}

std::vector<NewtonSchulzOptions> AllPaths() {
  std::vector<NewtonSchulzOptions> paths;
  for (const auto& coefficients : {NewtonSchulzCoefficients::Jordan5(),
                                   NewtonSchulzCoefficients::PolarExpress5()}) {
    for (const bool bf16 : {false, true}) {
      for (const bool gram : {false, true}) {
        if (bf16 && gram) continue;
        paths.push_back({.coefficients = coefficients,
                         .form = gram ? NewtonSchulzForm::kGram
                                      : NewtonSchulzForm::kStandard,
                         .precision = bf16 ? NewtonSchulzPrecision::kBF16
                                           : NewtonSchulzPrecision::kF32});
      }
    }
  }
  return paths;
}

}  // namespace muonstore
