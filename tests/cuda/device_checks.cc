#include "tests/cuda/device_checks.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/oracle/newton_schulz_oracle.h"

namespace muonstore::testutil {

std::vector<float> BatchValues(const DeviceMatrices& matrices, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const auto size = static_cast<size_t>(matrices.rows * matrices.cols);
  std::vector<float> values;
  for (int64_t i = 0; i < matrices.batch; ++i) {
    const float scale = std::pow(10.0F, static_cast<float>(i % 7 - 3));
    for (size_t j = 0; j < size; ++j) values.push_back(scale * normal(random));
  }
  return values;
}

std::vector<float> OrthogonalizeOn(CudaDevice& device,
                                   const DeviceMatrices& matrices,
                                   std::vector<float> values) {
  const auto bytes = std::as_writable_bytes(std::span(values));
  const auto registered = device.RegisterMemory(bytes);
  const auto buffer = device.Allocate(bytes.size());
  const PendingPtr up = device.CopyIn(*buffer, bytes);
  const PendingPtr work = device.Orthogonalize(*buffer, matrices);
  const PendingPtr down = device.CopyOut(bytes, *buffer);
  for (const PendingPtr* pending : {&down, &work, &up}) (*pending)->Wait();
  return values;
}

double ErrorAgainstOracle(const NewtonSchulzOptions& options,
                          const DeviceMatrices& matrices,
                          const std::vector<float>& in,
                          const std::vector<float>& out) {
  oracle::Iteration iteration{
      .norm_factor = options.coefficients.norm_factor,
      .eps = options.normalization == NewtonSchulzNormalization::kCompat ? 1e-7
                                                                         : 0.0};
  for (const QuinticStep& step : options.coefficients.steps) {
    iteration.steps.push_back({step.a, step.b, step.c});
  }
  const auto size = static_cast<size_t>(matrices.rows * matrices.cols);
  double worst = 0;
  for (size_t i = 0; i < static_cast<size_t>(matrices.batch); ++i) {
    const auto part = [&](const std::vector<float>& values) {
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(i * size);
      return std::vector<double>(first,
                                 first + static_cast<std::ptrdiff_t>(size));
    };
    const oracle::Matrix found{matrices.rows, matrices.cols, part(out)};
    const oracle::Matrix expected{
        matrices.rows, matrices.cols,
        oracle::Orthogonalize(part(in), static_cast<size_t>(matrices.rows),
                              static_cast<size_t>(matrices.cols), iteration)};
    const double error = oracle::RelativeError(found, expected);
    worst = std::isnan(error) ? error : std::max(worst, error);
  }
  return worst;
}

std::vector<DeviceMatrices> ManyShapes() {
  return {{.batch = 1, .rows = 1, .cols = 1},
          {.batch = 3, .rows = 1, .cols = 9},
          {.batch = 2, .rows = 9, .cols = 1},
          {.batch = 2, .rows = 7, .cols = 7},
          {.batch = 5, .rows = 5, .cols = 12},
          {.batch = 4, .rows = 12, .cols = 5},
          {.batch = 2, .rows = 20, .cols = 24},
          {.batch = 2, .rows = 60, .cols = 52},
          {.batch = 3, .rows = 48, .cols = 80},
          {.batch = 1, .rows = 70, .cols = 49}};
}

}  // namespace muonstore::testutil
