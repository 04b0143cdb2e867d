#include "tests/oracle/newton_schulz_oracle.h"

#include <cmath>

namespace muonstore::oracle {

Matrix Product(const Matrix& a, const Matrix& b) {
  Matrix c{a.rows, b.cols,
           std::vector<double>(static_cast<size_t>(a.rows * b.cols), 0.0)};
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t k = 0; k < a.cols; ++k) {
      const double factor = a.at(i, k);
      for (int64_t j = 0; j < b.cols; ++j) c.at(i, j) += factor * b.at(k, j);
    }
  }
  return c;
}

Matrix Transpose(const Matrix& a) {
  Matrix t{a.cols, a.rows, std::vector<double>(a.values.size())};
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.cols; ++j) t.at(j, i) = a.at(i, j);
  }
  return t;
}

double Norm(const Matrix& a) {
  double sum = 0;
  for (const double value : a.values) sum += value * value;
  return std::sqrt(sum);
}

double RelativeError(const Matrix& a, const Matrix& b) {
  Matrix difference = a;
  for (size_t i = 0; i < b.values.size(); ++i) {
    difference.values[i] -= b.values[i];
  }
  const double norm = Norm(b);
  return norm == 0 ? Norm(a) : Norm(difference) / norm;
}

Matrix NewtonSchulz(const Matrix& g,
                    const std::vector<std::array<double, 3>>& steps,
                    double norm_factor, double eps) {
  // On the smaller side's products, as the iteration is defined.
  if (g.rows > g.cols) {
    return Transpose(NewtonSchulz(Transpose(g), steps, norm_factor, eps));
  }
  const double norm = Norm(g);
  if (norm == 0) return g;
  Matrix x = g;
  for (double& value : x.values) value /= norm * norm_factor + eps;
  for (const auto& [a, b, c] : steps) {
    const Matrix gram = Product(x, Transpose(x));
    const Matrix cube = Product(gram, x);
    const Matrix fifth = Product(gram, cube);
    for (size_t i = 0; i < x.values.size(); ++i) {
      x.values[i] = a * x.values[i] + b * cube.values[i] + c * fifth.values[i];
    }
  }
  return x;
}

Iteration Jordan5() {
  Iteration iteration;
  iteration.steps.assign(5, {3.4445, -4.7750, 2.0315});
  return iteration;
}

Iteration PolarExpress5() {
  return {
      .steps = {{8.156554524902461, -22.48329292557795, 15.878769915207462},
                {4.042929935166739, -2.808917465908714, 0.5000178451051316},
                {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
                {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
                {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}},
      .norm_factor = 1.02};
}

std::vector<double> Orthogonalize(const std::vector<double>& values,
                                  size_t rows, size_t cols,
                                  const Iteration& iteration) {
  return NewtonSchulz(Matrix{.rows = static_cast<int64_t>(rows),
                             .cols = static_cast<int64_t>(cols),
                             .values = values},
                      iteration.steps, iteration.norm_factor, iteration.eps)
      .values;
}

}  // namespace muonstore::oracle
