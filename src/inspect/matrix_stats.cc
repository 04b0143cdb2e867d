#include "src/inspect/matrix_stats.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "muonstore/error.h"
#include "src/inspect/singular_values.h"

namespace muonstore {
namespace {

// Smallest positive normal number; 0 for types without denormals.
double SmallestNormal(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return std::numeric_limits<double>::min();
    case DType::kF32:
    case DType::kBF16:
      return 0x1p-126;
    case DType::kF16:
    case DType::kF8E5M2:
      return 0x1p-14;
    case DType::kF8E5M2FNUZ:
      return 0x1p-15;
    case DType::kF8E4M3FN:
      return 0x1p-6;
    case DType::kF8E4M3FNUZ:
      return 0x1p-7;
    default:
      return 0;
  }
}

// The exponent that brings a magnitude near 1; kept where 2^-exponent is a
// normal number. 0 for 0.
int ScaleExponent(double magnitude) {
  if (magnitude == 0) return 0;
  return std::clamp(std::ilogb(magnitude), -1000, 1000);
}

class Accumulator {
 public:
  Accumulator(MatrixStats& stats, DType dtype)
      : stats_(stats), smallest_normal_(SmallestNormal(dtype)) {}

  // Elements of the matrix from index `first` on.
  void Add(std::span<const double> values, int64_t first) {
    double largest = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i])) {
        CountNonFinite(first + static_cast<int64_t>(i));
        continue;
      }
      largest = std::max(largest, Count(values[i]));
    }
    AddSquares(values, largest);
  }

 private:
  void CountNonFinite(int64_t index) {
    if (stats_.num_nonfinite++ == 0) {
      stats_.first_nonfinite = {index / stats_.cols, index % stats_.cols};
    }
  }

  double Count(double value) {
    const double magnitude = std::abs(value);
    stats_.min = std::min(stats_.min.value_or(value), value);
    stats_.max = std::max(stats_.max.value_or(value), value);
    if (magnitude == 0) {
      ++stats_.num_zero;
    } else if (magnitude < smallest_normal_) {
      ++stats_.num_denormal;
    }
    return magnitude;
  }

  void AddSquares(std::span<const double> values, double largest) {
    const int exponent = ScaleExponent(largest);
    const double factor = std::ldexp(1.0, -exponent);
    double sum = 0;
    for (const double value : values) {
      const double scaled = std::isfinite(value) ? value * factor : 0;
      sum += scaled * scaled;
    }
    stats_.frobenius =
        std::hypot(stats_.frobenius, std::ldexp(std::sqrt(sum), exponent));
  }

  MatrixStats& stats_;
  double smallest_normal_;
};

std::vector<float> ReadScaled(MatrixReader& reader, int exponent) {
  std::vector<float> out;
  out.reserve(static_cast<size_t>(reader.view().num_elements()));
  const double factor = std::ldexp(1.0, -exponent);
  ForEachPiece(reader.view().num_elements(), [&](ElementRange range) {
    for (const double value : reader.Read(range)) {
      out.push_back(static_cast<float>(value * factor));
    }
  });
  return out;
}

// A row or a column has one singular value: its norm.
bool IsVector(const MatrixStats& stats) {
  return stats.rows == 1 || stats.cols == 1;
}

void AddSingularValues(MatrixReader& reader, int64_t count,
                       MatrixStats& stats) {
  if (IsVector(stats)) {
    stats.singular_values = {stats.frobenius};
    stats.stable_rank = stats.frobenius == 0 ? 0 : 1;
    return;
  }
  const int exponent = ScaleExponent(stats.largest_magnitude());
  const std::vector<float> values = ReadScaled(reader, exponent);
  SingularValues result =
      TopSingularValues({values, stats.rows, stats.cols}, count);
  const double norm = std::ldexp(stats.frobenius, -exponent);
  const double first = result.values.front();
  // Rounding may bring a rank-1 matrix below 1, which nothing is.
  stats.stable_rank =
      first == 0 ? 0 : std::max(1.0, (norm / first) * (norm / first));
  for (double& value : result.values) value = std::ldexp(value, exponent);
  stats.singular_values = std::move(result.values);
  stats.singular_values_converged = result.converged;
}

struct Dot {
  double sum = 0;
  bool identical = true;
};

Dot DotProduct(MatrixReader& a, MatrixReader& b, double factor_a,
               double factor_b) {
  Dot dot;
  ForEachPiece(a.view().num_elements(), [&](ElementRange range) {
    const std::span<const double> left = a.Read(range);
    const std::span<const double> right = b.Read(range);
    dot.identical &=
        std::memcmp(left.data(), right.data(), left.size_bytes()) == 0;
    for (size_t i = 0; i < left.size(); ++i) {
      dot.sum += (left[i] * factor_a) * (right[i] * factor_b);
    }
  });
  return dot;
}

}  // namespace

double MatrixStats::rms() const {
  const int64_t num_finite = num_elements() - num_nonfinite;
  return num_finite == 0
             ? 0
             : frobenius / std::sqrt(static_cast<double>(num_finite));
}

double MatrixStats::zero_fraction() const {
  return num_elements() == 0 ? 0
                             : static_cast<double>(num_zero) /
                                   static_cast<double>(num_elements());
}

double MatrixStats::denormal_fraction() const {
  return num_elements() == 0 ? 0
                             : static_cast<double>(num_denormal) /
                                   static_cast<double>(num_elements());
}

double MatrixStats::largest_magnitude() const {
  return std::max(std::abs(min.value_or(0)), std::abs(max.value_or(0)));
}

MatrixStats BasicStats(MatrixReader& reader) {
  MatrixStats stats;
  stats.rows = reader.view().rows;
  stats.cols = reader.view().cols;
  Accumulator accumulator(stats, reader.dtype());
  ForEachPiece(reader.view().num_elements(), [&](ElementRange range) {
    accumulator.Add(reader.Read(range), range.begin);
  });
  return stats;
}

MatrixStats ComputeMatrixStats(MatrixReader& reader,
                               int64_t num_singular_values) {
  MatrixStats stats = BasicStats(reader);
  if (stats.num_nonfinite == 0 && stats.num_elements() > 0) {
    AddSingularValues(reader, num_singular_values, stats);
  }
  return stats;
}

MatrixComparison CompareMatrices(MatrixReader& a, MatrixReader& b) {
  if (a.view().rows != b.view().rows || a.view().cols != b.view().cols) {
    throw Error(ErrorCode::kInvalidArgument, "matrices of different sizes");
  }
  const MatrixStats left = BasicStats(a);
  const MatrixStats right = BasicStats(b);
  const int exponent_a = ScaleExponent(left.largest_magnitude());
  const int exponent_b = ScaleExponent(right.largest_magnitude());
  const Dot dot = DotProduct(a, b, std::ldexp(1.0, -exponent_a),
                             std::ldexp(1.0, -exponent_b));
  MatrixComparison result;
  result.identical = dot.identical;
  const bool finite = left.num_nonfinite == 0 && right.num_nonfinite == 0;
  if (finite && left.frobenius > 0 && right.frobenius > 0) {
    const double norms = std::ldexp(left.frobenius, -exponent_a) *
                         std::ldexp(right.frobenius, -exponent_b);
    result.cosine = std::clamp(dot.sum / norms, -1.0, 1.0);
    result.norm_ratio = left.frobenius / right.frobenius;
  }
  return result;
}

}  // namespace muonstore
