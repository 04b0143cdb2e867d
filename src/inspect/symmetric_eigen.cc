#include "src/inspect/symmetric_eigen.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "muonstore/error.h"

namespace muonstore {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
// A tridiagonal matrix needs two or three steps an eigenvalue.
constexpr int kMaxStepsPerValue = 60;

double Dot(const double* a, const double* b, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// y += factor * x
void AddScaled(double factor, const double* x, double* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

// The matrix while it is reduced: T = Q^T A Q is tridiagonal afterwards.
struct Tridiagonal {
  size_t n = 0;
  std::vector<double> diagonal;
  std::vector<double> off_diagonal;  // n - 1 entries.
  // Row k of `reflectors` holds v of step k behind its diagonal; H = I - beta
  // v v^T.
  std::vector<double> reflectors;
  std::vector<double> betas;
};

// Turns `x` into the reflector v that maps x to (alpha, 0, ...); returns beta.
double MakeReflector(std::span<double> x, double& alpha) {
  const double norm = std::sqrt(Dot(x.data(), x.data(), x.size()));
  // The matrix is normalized: this small is nothing but rounding errors of
  // rounding errors (a matrix of low rank), and its square would vanish.
  constexpr double kNothing = 1e-100;
  if (norm < kNothing) {
    alpha = 0;
    return 0;
  }
  alpha = x[0] > 0 ? -norm : norm;
  x[0] -= alpha;
  return -1 / (alpha * x[0]);  // 2 / v^T v
}

// B -= v w^T + w v^T for the trailing block B = H B H, with `v` of length m.
void ReflectTrailing(double* block, size_t stride, std::span<const double> v,
                     double beta) {
  const size_t m = v.size();
  std::vector<double> w(m, 0.0);
  for (size_t i = 0; i < m; ++i) {
    AddScaled(beta * v[i], block + i * stride, w.data(), m);
  }
  AddScaled(-beta / 2 * Dot(w.data(), v.data(), m), v.data(), w.data(), m);
  for (size_t i = 0; i < m; ++i) {
    double* row = block + i * stride;
    const double vi = v[i];
    const double wi = w[i];
    for (size_t j = 0; j < m; ++j) row[j] -= vi * w[j] + wi * v[j];
  }
}

Tridiagonal Reduce(std::vector<double> a, size_t n) {
  Tridiagonal t;
  t.n = n;
  t.diagonal.resize(n);
  t.off_diagonal.assign(n == 0 ? 0 : n - 1, 0.0);
  t.betas.assign(n, 0.0);
  for (size_t k = 0; k + 1 < n; ++k) {
    double* row = a.data() + k * n;
    t.diagonal[k] = row[k];
    std::span<double> v(row + k + 1, n - k - 1);
    if (v.size() == 1) {
      t.off_diagonal[k] = v[0];
      continue;
    }
    t.betas[k] = MakeReflector(v, t.off_diagonal[k]);
    if (t.betas[k] != 0) {
      ReflectTrailing(a.data() + (k + 1) * n + k + 1, n, v, t.betas[k]);
    }
  }
  if (n > 0) t.diagonal[n - 1] = a[n * n - 1];
  t.reflectors = std::move(a);
  return t;
}

// Q^T as rows: row j is column j of Q = H_0 H_1 ...
std::vector<double> TransposedBasis(const Tridiagonal& t) {
  const size_t n = t.n;
  std::vector<double> q(n * n, 0.0);
  for (size_t i = 0; i < n; ++i) q[i * n + i] = 1;
  // Rows of Q^T are columns of Q, so H_k from the left acts inside each row.
  for (size_t k = n; k-- > 0;) {
    if (t.betas[k] == 0) continue;
    const double* v = t.reflectors.data() + k * n + k + 1;
    const size_t m = n - k - 1;
    for (size_t j = k + 1; j < n; ++j) {
      double* column = q.data() + j * n + k + 1;
      AddScaled(-t.betas[k] * Dot(v, column, m), v, column, m);
    }
  }
  return q;
}

struct Rotation {
  double c;
  double s;
  double r;
};

Rotation MakeRotation(double x, double z) {
  const double r = std::hypot(x, z);
  return r == 0 ? Rotation{1, 0, 0} : Rotation{x / r, z / r, r};
}

class TridiagonalQr {
 public:
  // `rows` may be empty: then only eigenvalues are computed.
  TridiagonalQr(std::vector<double>& diagonal,
                std::vector<double>& off_diagonal, std::vector<double>& rows)
      : d_(diagonal), e_(off_diagonal), rows_(rows) {
    for (double value : d_) norm_ = std::max(norm_, std::abs(value));
    for (double value : e_) norm_ = std::max(norm_, std::abs(value));
  }

  void Run() {
    size_t high = d_.empty() ? 0 : d_.size() - 1;
    int steps = 0;
    while (high > 0) {
      if (Negligible(high - 1)) {
        --high;
        steps = 0;
        continue;
      }
      size_t low = high - 1;
      while (low > 0 && !Negligible(low - 1)) --low;
      if (++steps > kMaxStepsPerValue) {
        throw Error(ErrorCode::kInternal, "eigenvalue iteration does not end");
      }
      Step(low, high);
    }
  }

 private:
  bool Negligible(size_t k) const {
    const double size = std::abs(e_[k]);
    return size <= kEpsilon * (std::abs(d_[k]) + std::abs(d_[k + 1])) ||
           // The reduction's own rounding errors are of this size: what is
           // below them would never settle (a constant matrix).
           size <= kEpsilon * norm_;
  }

  // One implicit QR step on the unreduced block [low, high].
  void Step(size_t low, size_t high) {
    const double delta = (d_[high - 1] - d_[high]) / 2;
    const double last = e_[high - 1];
    const double root = std::hypot(delta, last);
    const double shift =
        d_[high] - last * (last / (delta + (delta < 0 ? -root : root)));
    double x = d_[low] - shift;
    double z = e_[low];
    for (size_t k = low; k < high; ++k) {
      const Rotation rot = MakeRotation(x, z);
      if (k > low) e_[k - 1] = rot.r;
      Rotate(k, rot);
      if (k + 1 == high) break;
      x = e_[k];
      z = rot.s * e_[k + 1];
      e_[k + 1] *= rot.c;
    }
  }

  void Rotate(size_t k, const Rotation& rot) {
    const double a = d_[k];
    const double b = d_[k + 1];
    const double t = e_[k];
    const double cross = 2 * rot.c * rot.s * t;
    d_[k] = rot.c * rot.c * a + cross + rot.s * rot.s * b;
    d_[k + 1] = rot.s * rot.s * a - cross + rot.c * rot.c * b;
    e_[k] = rot.c * rot.s * (b - a) + (rot.c * rot.c - rot.s * rot.s) * t;
    if (rows_.empty()) return;
    const size_t n = d_.size();
    double* upper = rows_.data() + k * n;
    double* lower = upper + n;
    for (size_t j = 0; j < n; ++j) {
      const double u = upper[j];
      upper[j] = rot.c * u + rot.s * lower[j];
      lower[j] = rot.c * lower[j] - rot.s * u;
    }
  }

  std::vector<double>& d_;
  std::vector<double>& e_;
  std::vector<double>& rows_;
  double norm_ = 0;
};

SymmetricEigen Sorted(const std::vector<double>& values,
                      const std::vector<double>& rows) {
  const size_t n = values.size();
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&values](size_t a, size_t b) {
    return values[a] > values[b];
  });
  SymmetricEigen out;
  for (size_t i : order) {
    out.values.push_back(values[i]);
    if (rows.empty()) continue;
    const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(i * n);
    out.vectors.insert(out.vectors.end(), begin,
                       begin + static_cast<std::ptrdiff_t>(n));
  }
  return out;
}

// Divides by a power of two near the largest entry, so that no square
// overflows or vanishes; returns the factor.
double Normalize(std::vector<double>& matrix) {
  double largest = 0;
  for (double value : matrix) largest = std::max(largest, std::abs(value));
  if (largest == 0) return 1;
  const int exponent = std::ilogb(largest);
  for (double& value : matrix) value = std::ldexp(value, -exponent);
  return std::ldexp(1.0, exponent);
}

}  // namespace

SymmetricEigen EigenDecompose(std::vector<double> matrix, int64_t n,
                              EigenParts parts) {
  if (n < 0 || matrix.size() != static_cast<size_t>(n * n)) {
    throw Error(ErrorCode::kInvalidArgument, "matrix is not n x n");
  }
  const double scale = Normalize(matrix);
  Tridiagonal t = Reduce(std::move(matrix), static_cast<size_t>(n));
  std::vector<double> rows;
  if (parts == EigenParts::kValuesAndVectors) rows = TransposedBasis(t);
  TridiagonalQr(t.diagonal, t.off_diagonal, rows).Run();
  for (double& value : t.diagonal) value *= scale;
  return Sorted(t.diagonal, rows);
}

}  // namespace muonstore
