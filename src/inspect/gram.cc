#include "src/inspect/gram.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace muonstore {
namespace {

constexpr size_t kTile = 4;
constexpr size_t kDepth = 64;  // Rows of a panel; two panels fit a L1 cache.
constexpr size_t kWidth = static_cast<size_t>(kBlockWidth);

// `depth` vectors of n entries, as tiles: entry (k, i) is at
// (i / kTile * kDepth + k) * kTile + i % kTile. Entries beyond n are zero.
struct Panel {
  std::vector<double> values;
  size_t depth = 0;

  explicit Panel(size_t tiles) : values(tiles * kDepth * kTile, 0.0) {}
  double& at(size_t k, size_t i) {
    return values[(i / kTile * kDepth + k) * kTile + i % kTile];
  }
  const double* tile(size_t index) const {
    return values.data() + index * kDepth * kTile;
  }
};

// out (kTile x kTile) += sum over k of a_k b_k^T.
void AddTile(const double* a, const double* b, size_t depth, double* out,
             size_t stride) {
  std::array<double, kTile * kTile> sum{};
  for (size_t k = 0; k < depth; ++k) {
    for (size_t i = 0; i < kTile; ++i) {
      for (size_t j = 0; j < kTile; ++j) {
        sum[i * kTile + j] += a[k * kTile + i] * b[k * kTile + j];
      }
    }
  }
  for (size_t i = 0; i < kTile; ++i) {
    for (size_t j = 0; j < kTile; ++j) {
      out[i * stride + j] += sum[i * kTile + j];
    }
  }
}

// Upper tiles of `gram` (tiles * kTile squared) += panel^T panel.
void AddPanel(const Panel& panel, size_t tiles, std::vector<double>& gram) {
  const size_t stride = tiles * kTile;
  for (size_t i = 0; i < tiles; ++i) {
    for (size_t j = i; j < tiles; ++j) {
      AddTile(panel.tile(i), panel.tile(j), panel.depth,
              gram.data() + i * kTile * stride + j * kTile, stride);
    }
  }
}

// The panel of vectors [begin, begin + depth): rows of the matrix, or its
// columns where the rows are the smaller side.
void FillPanel(const MatrixRef& matrix, bool from_columns, size_t begin,
               Panel& panel) {
  const auto rows = static_cast<size_t>(matrix.rows);
  const auto cols = static_cast<size_t>(matrix.cols);
  panel.depth = std::min(kDepth, (from_columns ? cols : rows) - begin);
  const float* values = matrix.values.data();
  if (from_columns) {
    for (size_t i = 0; i < rows; ++i) {
      for (size_t k = 0; k < panel.depth; ++k) {
        panel.at(k, i) = static_cast<double>(values[i * cols + begin + k]);
      }
    }
    return;
  }
  for (size_t k = 0; k < panel.depth; ++k) {
    for (size_t i = 0; i < cols; ++i) {
      panel.at(k, i) = static_cast<double>(values[(begin + k) * cols + i]);
    }
  }
}

// n x n, both triangles, from the upper tiles.
std::vector<double> Symmetric(const std::vector<double>& gram, size_t stride,
                              size_t n) {
  std::vector<double> out(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i; j < n; ++j) {
      out[i * n + j] = gram[i * stride + j];
      out[j * n + i] = out[i * n + j];
    }
  }
  return out;
}

// Four rows at a time: four independent chains of sums a vector.
constexpr size_t kRows = 4;

struct RowGroup {
  std::array<const float*, kRows> row;
  size_t count;
};

// Rows [begin, begin + kRows) of the matrix; rows beyond the last repeat it.
RowGroup Rows(const MatrixRef& matrix, size_t begin) {
  const auto rows = static_cast<size_t>(matrix.rows);
  const auto cols = static_cast<size_t>(matrix.cols);
  RowGroup group{};
  group.count = std::min(kRows, rows - begin);
  for (size_t r = 0; r < kRows; ++r) {
    const size_t index = begin + std::min(r, group.count - 1);
    group.row[r] = matrix.values.data() + index * cols;
  }
  return group;
}

using Coefficients = std::array<double, kRows * kWidth>;

// Products of four rows with the block.
Coefficients DotRows(const RowGroup& group, const double* x, size_t cols) {
  Coefficients sum{};
  for (size_t j = 0; j < cols; ++j) {
    for (size_t r = 0; r < kRows; ++r) {
      const auto value = static_cast<double>(group.row[r][j]);
      for (size_t c = 0; c < kWidth; ++c) {
        sum[r * kWidth + c] += value * x[j * kWidth + c];
      }
    }
  }
  return sum;
}

// out += sum of row r times its coefficients.
void AddRows(const RowGroup& group, const Coefficients& factors, size_t cols,
             double* out) {
  for (size_t j = 0; j < cols; ++j) {
    std::array<double, kWidth> sum{};
    for (size_t r = 0; r < kRows; ++r) {
      const auto value = static_cast<double>(group.row[r][j]);
      for (size_t c = 0; c < kWidth; ++c) {
        sum[c] += value * factors[r * kWidth + c];
      }
    }
    for (size_t c = 0; c < kWidth; ++c) out[j * kWidth + c] += sum[c];
  }
}

}  // namespace

std::vector<double> SmallerGram(const MatrixRef& matrix) {
  const bool from_columns = matrix.rows <= matrix.cols;
  const auto n = static_cast<size_t>(matrix.smaller_side());
  const auto depth =
      static_cast<size_t>(from_columns ? matrix.cols : matrix.rows);
  const size_t tiles = (n + kTile - 1) / kTile;
  std::vector<double> gram(tiles * kTile * tiles * kTile, 0.0);
  Panel panel(tiles);
  for (size_t begin = 0; begin < depth; begin += kDepth) {
    FillPanel(matrix, from_columns, begin, panel);
    AddPanel(panel, tiles, gram);
  }
  return Symmetric(gram, tiles * kTile, n);
}

void AddTransposedProduct(const MatrixRef& matrix, std::span<const double> x,
                          std::span<double> out) {
  const auto rows = static_cast<size_t>(matrix.rows);
  for (size_t begin = 0; begin < rows; begin += kRows) {
    const RowGroup group = Rows(matrix, begin);
    Coefficients factors{};
    std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(begin * kWidth),
                group.count * kWidth, factors.begin());
    AddRows(group, factors, static_cast<size_t>(matrix.cols), out.data());
  }
}

void Product(const MatrixRef& matrix, std::span<const double> x,
             std::span<double> out) {
  const auto rows = static_cast<size_t>(matrix.rows);
  for (size_t begin = 0; begin < rows; begin += kRows) {
    const RowGroup group = Rows(matrix, begin);
    const Coefficients sum =
        DotRows(group, x.data(), static_cast<size_t>(matrix.cols));
    std::copy_n(sum.begin(), group.count * kWidth,
                out.begin() + static_cast<std::ptrdiff_t>(begin * kWidth));
  }
}

}  // namespace muonstore
