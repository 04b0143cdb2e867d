#include "src/inspect/block_lanczos.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <random>

#include "src/inspect/symmetric_eigen.h"

namespace muonstore {
namespace {

constexpr size_t kWidth = static_cast<size_t>(kBlockWidth);
constexpr uint64_t kSeed = 20240607;
constexpr double kPairTolerance = 1e-8;
constexpr double kAbsoluteTolerance = 1e-14;
// A remainder below this part of the product is rounding noise.
constexpr double kBreakdown = 1e-14;

using Block = std::vector<double>;                  // n x kWidth.
using Small = std::array<double, kWidth * kWidth>;  // Row-major.

// a^T b
Small Overlap(const Block& a, const Block& b) {
  Small sum{};
  for (size_t i = 0; i < a.size(); i += kWidth) {
    for (size_t r = 0; r < kWidth; ++r) {
      for (size_t c = 0; c < kWidth; ++c) {
        sum[r * kWidth + c] += a[i + r] * b[i + c];
      }
    }
  }
  return sum;
}

// b -= a * factors
void Subtract(const Block& a, const Small& factors, Block& b) {
  for (size_t i = 0; i < a.size(); i += kWidth) {
    for (size_t r = 0; r < kWidth; ++r) {
      for (size_t c = 0; c < kWidth; ++c) {
        b[i + c] -= a[i + r] * factors[r * kWidth + c];
      }
    }
  }
}

double ColumnDot(const Block& a, size_t ca, const Block& b, size_t cb) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); i += kWidth) sum += a[i + ca] * b[i + cb];
  return sum;
}

double ColumnNorm(const Block& block, size_t column) {
  return std::sqrt(ColumnDot(block, column, block, column));
}

// block[column] -= its part along from[c], a unit vector; returns the overlap.
double RemoveColumn(const Block& from, size_t c, Block& block, size_t column) {
  const double overlap = ColumnDot(from, c, block, column);
  for (size_t i = 0; i < block.size(); i += kWidth) {
    block[i + column] -= overlap * from[i + c];
  }
  return overlap;
}

void ScaleColumn(Block& block, size_t column, double factor) {
  for (size_t i = 0; i < block.size(); i += kWidth) {
    block[i + column] *= factor;
  }
}

class Krylov {
 public:
  explicit Krylov(const MatrixRef& matrix)
      : matrix_(matrix),
        tall_(matrix.cols <= matrix.rows),
        side_(static_cast<size_t>(matrix.smaller_side())),
        random_(kSeed) {
    Block start(side_ * kWidth);
    for (size_t c = 0; c < kWidth; ++c) Randomize(start, c);
    (void)Orthonormalize(start);
    next_ = std::move(start);
  }

  size_t dimension() const { return basis_.size() * kWidth; }
  size_t side() const { return side_; }

  // One more block: multiplies, projects, keeps what is left over.
  void Extend() {
    basis_.push_back(std::move(next_));
    next_ = Multiply(basis_.back());
    for (size_t c = 0; c < kWidth; ++c) {
      scale_ = std::max(scale_, ColumnNorm(next_, c));
    }
    std::vector<Small> column(basis_.size(), Small{});
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t i = 0; i < basis_.size(); ++i) {
        const Small overlap = Overlap(basis_[i], next_);
        Subtract(basis_[i], overlap, next_);
        for (size_t e = 0; e < overlap.size(); ++e) column[i][e] += overlap[e];
      }
    }
    projected_.push_back(std::move(column));
    remainder_ = Orthonormalize(next_);
  }

  // Values and largest residual of the first `count` Ritz pairs.
  LanczosResult Ritz(size_t count) const {
    const size_t p = dimension();
    const SymmetricEigen eigen = EigenDecompose(
        Projected(), static_cast<int64_t>(p), EigenParts::kValuesAndVectors);
    LanczosResult result;
    result.converged = true;
    for (size_t i = 0; i < std::min(count, p); ++i) {
      const double value = std::max(eigen.values[i], 0.0);
      const double residual =
          Residual(eigen.vectors.data() + (i + 1) * p - kWidth);
      result.eigenvalues.push_back(value);
      result.residual = std::max(result.residual, residual);
      result.converged &=
          residual <= std::max(kPairTolerance * value,
                               kAbsoluteTolerance * eigen.values[0]);
    }
    return result;
  }

 private:
  // Gram matrix times block, through the matrix in one or two passes.
  Block Multiply(const Block& x) const {
    Block middle(static_cast<size_t>(tall_ ? matrix_.rows : matrix_.cols) *
                 kWidth);
    Block out(side_ * kWidth);
    if (tall_) {
      Product(matrix_, x, middle);
      AddTransposedProduct(matrix_, middle, out);
    } else {
      AddTransposedProduct(matrix_, x, middle);
      Product(matrix_, middle, out);
    }
    return out;
  }

  void Randomize(Block& block, size_t column) {
    for (size_t i = column; i < block.size(); i += kWidth) {
      block[i] = std::ldexp(static_cast<double>(random_() >> 11), -52) - 1.0;
    }
  }

  // Makes a column orthogonal to the basis and to the columns before it.
  void RemoveBasis(Block& block, size_t column) const {
    for (int pass = 0; pass < 2; ++pass) {
      for (const Block& other : basis_) {
        for (size_t c = 0; c < kWidth; ++c) {
          RemoveColumn(other, c, block, column);
        }
      }
      for (size_t c = 0; c < column; ++c) RemoveColumn(block, c, block, column);
    }
  }

  // Makes the columns orthonormal and returns R of block = Q R. A column that
  // lies in the span of what is there is replaced by a random direction with a
  // zero row in R: that is how further copies of an equal value are found.
  Small Orthonormalize(Block& block) {
    Small r{};
    for (size_t c = 0; c < kWidth; ++c) {
      const double before = ColumnNorm(block, c);
      for (size_t q = 0; q < c; ++q) {
        r[q * kWidth + c] = RemoveColumn(block, q, block, c);
      }
      double norm = ColumnNorm(block, c);
      // What is left after a cancellation is orthogonal to nothing.
      if (norm < 0.5 * before) {
        RemoveBasis(block, c);
        norm = ColumnNorm(block, c);
      }
      if (norm > kBreakdown * scale_) {
        r[c * kWidth + c] = norm;
      } else {
        Randomize(block, c);
        RemoveBasis(block, c);
        norm = ColumnNorm(block, c);
      }
      ScaleColumn(block, c, 1 / norm);
    }
    return r;
  }

  std::vector<double> Projected() const {
    const size_t p = dimension();
    std::vector<double> t(p * p, 0.0);
    for (size_t j = 0; j < projected_.size(); ++j) {
      for (size_t i = 0; i <= j; ++i) {
        for (size_t e = 0; e < kWidth * kWidth; ++e) {
          const size_t row = i * kWidth + e / kWidth;
          const size_t col = j * kWidth + e % kWidth;
          t[row * p + col] = projected_[j][i][e];
          t[col * p + row] = projected_[j][i][e];
        }
      }
    }
    return t;
  }

  // |R s| for the last kWidth entries of a Ritz vector.
  double Residual(const double* last) const {
    double sum = 0;
    for (size_t r = 0; r < kWidth; ++r) {
      double entry = 0;
      for (size_t c = 0; c < kWidth; ++c) {
        entry += remainder_[r * kWidth + c] * last[c];
      }
      sum += entry * entry;
    }
    return std::sqrt(sum);
  }

  const MatrixRef& matrix_;
  bool tall_;
  size_t side_;
  std::mt19937_64 random_;
  std::vector<Block> basis_;
  Block next_;
  // [j][i], i <= j: block (i, j) of the projected matrix.
  std::vector<std::vector<Small>> projected_;
  Small remainder_{};
  double scale_ = 0;  // Largest column norm of a product so far.
};

}  // namespace

LanczosResult LargestGramEigenvalues(const MatrixRef& matrix, int64_t count) {
  Krylov krylov(matrix);
  // Room for a whole block must be left, or no direction would be new.
  const size_t limit =
      std::min(static_cast<size_t>(kMaxBasis), krylov.side() - kWidth);
  size_t next_check = 4 * kWidth;
  for (;;) {
    krylov.Extend();
    const bool last = krylov.dimension() + kWidth > limit;
    if (krylov.dimension() < next_check && !last) continue;
    LanczosResult result = krylov.Ritz(static_cast<size_t>(count));
    if (result.converged || last) return result;
    next_check = krylov.dimension() + std::max(kWidth, krylov.dimension() / 4);
  }
}

}  // namespace muonstore
