#include "tests/oracle/newton_schulz.h"

#include <cmath>

namespace muonstore::oracle {
namespace {

using Values = std::vector<double>;

Values Transpose(const Values& x, size_t rows, size_t cols) {
  Values t(x.size());
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < cols; ++j) t[j * rows + i] = x[i * cols + j];
  }
  return t;
}

// n x k times k x m.
Values Multiply(const Values& a, const Values& b, size_t n, size_t k,
                size_t m) {
  Values c(n * m, 0.0);
  for (size_t i = 0; i < n; ++i) {
    for (size_t l = 0; l < k; ++l) {
      for (size_t j = 0; j < m; ++j)
        c[i * m + j] += a[i * k + l] * b[l * m + j];
    }
  }
  return c;
}

Values Normalize(Values x, const Iteration& iteration) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  const double norm = std::sqrt(sum) * iteration.norm_factor + iteration.eps;
  if (norm == 0) return x;
  for (double& v : x) v /= norm;
  return x;
}

}  // namespace

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

Values Orthogonalize(const Values& values, size_t rows, size_t cols,
                     const Iteration& iteration) {
  if (rows > cols) {
    const Values t =
        Orthogonalize(Transpose(values, rows, cols), cols, rows, iteration);
    return Transpose(t, cols, rows);
  }
  Values x = Normalize(values, iteration);
  for (const auto& [a, b, c] : iteration.steps) {
    const Values gram = Multiply(x, Transpose(x, rows, cols), rows, cols, rows);
    Values polynomial = Multiply(gram, gram, rows, rows, rows);
    for (size_t i = 0; i < gram.size(); ++i) {
      polynomial[i] = b * gram[i] + c * polynomial[i];
    }
    const Values rest = Multiply(polynomial, x, rows, rows, cols);
    for (size_t i = 0; i < x.size(); ++i) x[i] = a * x[i] + rest[i];
  }
  return x;
}

}  // namespace muonstore::oracle
