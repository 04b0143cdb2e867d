// Newton-Schulz as the formula says, in double, with three nested loops.
#ifndef MUONSTORE_TESTS_ORACLE_NEWTON_SCHULZ_ORACLE_H_
#define MUONSTORE_TESTS_ORACLE_NEWTON_SCHULZ_ORACLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace muonstore::oracle {

struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> values;  // Row-major.

  double& at(int64_t i, int64_t j) {
    return values[static_cast<size_t>(i * cols + j)];
  }
  double at(int64_t i, int64_t j) const {
    return values[static_cast<size_t>(i * cols + j)];
  }
};

Matrix Product(const Matrix& a, const Matrix& b);
Matrix Transpose(const Matrix& a);
double Norm(const Matrix& a);
// |a - b| / |b| by Frobenius norms; |a| where b is zero.
double RelativeError(const Matrix& a, const Matrix& b);

// X = G / (|G| norm_factor + eps), then X = a X + b X X^T X + c (X X^T)^2 X for
// each step {a, b, c}. Zero stays zero.
Matrix NewtonSchulz(const Matrix& g,
                    const std::vector<std::array<double, 3>>& steps,
                    double norm_factor, double eps);

// What an iteration computes.
struct Iteration {
  std::vector<std::array<double, 3>> steps;  // a, b, c.
  double norm_factor = 1;
  double eps = 1e-7;  // Added to the norm.
};

Iteration Jordan5();
Iteration PolarExpress5();

// NewtonSchulz of row-major values.
std::vector<double> Orthogonalize(const std::vector<double>& values,
                                  size_t rows, size_t cols,
                                  const Iteration& iteration);

}  // namespace muonstore::oracle

#endif  // MUONSTORE_TESTS_ORACLE_NEWTON_SCHULZ_ORACLE_H_
