#include "tests/inspect/matrices.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace muonstore::testutil {
namespace {

using Vector = std::vector<double>;

double Dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// `count` orthonormal vectors of n entries, by Gram-Schmidt.
std::vector<Vector> Orthonormal(int64_t n, size_t count) {
  const std::vector<float> raw =
      HashedMatrix(static_cast<int64_t>(count) + 3, n);
  std::vector<Vector> out;
  for (size_t k = 0; k < count; ++k) {
    const auto* begin = raw.data() + (k + 3) * static_cast<size_t>(n);
    Vector v(begin, begin + n);
    for (int pass = 0; pass < 2; ++pass) {
      for (const Vector& other : out) {
        const double overlap = Dot(v, other);
        for (size_t i = 0; i < v.size(); ++i) v[i] -= overlap * other[i];
      }
    }
    const double norm = std::sqrt(Dot(v, v));
    for (double& value : v) value /= norm;
    out.push_back(std::move(v));
  }
  return out;
}

// Makes two vectors orthogonal; returns whether they were not.
bool Rotate(Vector& a, Vector& b) {
  const double alpha = Dot(a, a);
  const double beta = Dot(b, b);
  const double gamma = Dot(a, b);
  if (std::abs(gamma) <= 1e-15 * std::sqrt(alpha * beta)) return false;
  const double zeta = (beta - alpha) / (2 * gamma);
  const double t =
      (zeta >= 0 ? 1 : -1) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta));
  const double c = 1 / std::sqrt(1 + t * t);
  const double s = c * t;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = a[i];
    a[i] = c * x - s * b[i];
    b[i] = s * x + c * b[i];
  }
  return true;
}

}  // namespace

std::vector<float> HashedMatrix(int64_t rows, int64_t cols) {
  std::vector<float> out;
  for (int64_t i = 0; i < rows * cols; ++i) {
    auto x = static_cast<uint32_t>(static_cast<uint64_t>(i) * 2654435761U);
    x ^= x >> 15;
    x *= 2246822519U;
    x ^= x >> 13;
    out.push_back(static_cast<float>(x >> 8) / 16777216.0F - 0.5F);
  }
  return out;
}

std::vector<float> MatrixWithSingularValues(int64_t rows, int64_t cols,
                                            const std::vector<double>& sigmas) {
  const std::vector<Vector> u = Orthonormal(rows, sigmas.size());
  const std::vector<Vector> v = Orthonormal(cols, sigmas.size());
  std::vector<float> out;
  for (size_t i = 0; i < static_cast<size_t>(rows); ++i) {
    for (size_t j = 0; j < static_cast<size_t>(cols); ++j) {
      double sum = 0;
      for (size_t r = 0; r < sigmas.size(); ++r) {
        sum += sigmas[r] * u[r][i] * v[r][j];
      }
      out.push_back(static_cast<float>(sum));
    }
  }
  return out;
}

std::vector<double> JacobiSingularValues(const std::vector<float>& matrix,
                                         int64_t rows, int64_t cols) {
  const bool by_rows = rows <= cols;
  std::vector<Vector> vectors(static_cast<size_t>(std::min(rows, cols)));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      vectors[static_cast<size_t>(by_rows ? i : j)].push_back(
          static_cast<double>(matrix[static_cast<size_t>(i * cols + j)]));
    }
  }
  bool rotated = true;
  for (int sweep = 0; rotated && sweep < 60; ++sweep) {
    rotated = false;
    for (size_t p = 0; p < vectors.size(); ++p) {
      for (size_t q = p + 1; q < vectors.size(); ++q) {
        rotated |= Rotate(vectors[p], vectors[q]);
      }
    }
  }
  Vector values;
  for (const Vector& vector : vectors) {
    values.push_back(std::sqrt(Dot(vector, vector)));
  }
  std::sort(values.rbegin(), values.rend());
  return values;
}

}  // namespace muonstore::testutil
