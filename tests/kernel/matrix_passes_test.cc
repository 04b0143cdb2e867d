// The passes that move blocks across the diagonal, at every kind of edge.
#include "src/kernel/matrix_passes.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "src/tensor/float_bits.h"

namespace muonstore {
namespace {

constexpr float kPassesGuard = -7.0F;

std::vector<std::pair<int64_t, int64_t>> PassesShapes() {
  return {{1, 1}, {16, 16}, {17, 5}, {5, 17}, {48, 33}, {64, 64}, {31, 32}};
}

// Every element has its own value, which bf16 does not hold exactly.
std::vector<float> Numbered(int64_t rows, int64_t ld) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows * ld; ++i) {
    values.push_back(1.0F + static_cast<float>(i) / 1024.0F);
  }
  return values;
}

TEST(MatrixPasses, TransposeAndScaleReachEveryEdge) {
  for (const auto& [rows, cols] : PassesShapes()) {
    const int64_t ld = cols + 3;
    const int64_t out_ld = rows + 2;
    const std::vector<float> in = Numbered(rows, ld);
    std::vector<float> copied(static_cast<size_t>(cols * out_ld), kPassesGuard);
    std::vector<float> scaled = copied;
    TransposeInto({in.data(), ld, rows, cols}, copied.data(), out_ld);
    ScaleTransposedInto({in.data(), ld, rows, cols}, 0.3, scaled.data(),
                        out_ld);
    for (int64_t j = 0; j < cols; ++j) {
      for (int64_t i = 0; i < out_ld; ++i) {
        const auto at = static_cast<size_t>(j * out_ld + i);
        const float value =
            i < rows ? in[static_cast<size_t>(i * ld + j)] : kPassesGuard;
        EXPECT_EQ(copied[at], value);
        EXPECT_EQ(scaled[at],
                  i < rows ? static_cast<float>(value * 0.3) : kPassesGuard);
      }
    }
  }
}

TEST(MatrixPasses, RoundTransposedIsRoundAndTranspose) {
  for (const auto& [rows, cols] : PassesShapes()) {
    const int64_t out_ld = rows + 1;
    const std::vector<float> in = Numbered(rows, cols);
    std::vector<BF16> out(static_cast<size_t>(cols * out_ld), BF16{0x7777});
    RoundTransposedInto({in.data(), cols, rows, cols}, out.data(), out_ld);
    for (int64_t j = 0; j < cols; ++j) {
      for (int64_t i = 0; i < rows; ++i) {
        EXPECT_EQ(out[static_cast<size_t>(j * out_ld + i)].bits,
                  BF16FromFloat(in[static_cast<size_t>(i * cols + j)]));
      }
      EXPECT_EQ(out[static_cast<size_t>(j * out_ld + rows)].bits, 0x7777);
    }
  }
}

TEST(MatrixPasses, AddScaledRoundsOnceAndStaysInside) {
  constexpr int64_t kRows = 3;
  constexpr int64_t kCols = 21;
  const std::vector<float> product = Numbered(kRows, kCols);
  std::vector<BF16> x;
  for (const float value : Numbered(kRows, kCols)) {
    x.push_back({BF16FromFloat(value * 0.7F)});
  }
  std::vector<float> out(kRows * (kCols + 1), kPassesGuard);
  std::vector<float> in_place = product;
  AddScaledInto({product.data(), kCols, kRows, kCols}, x.data(), kCols, 3.4F,
                out.data(), kCols + 1);
  AddScaledTo({in_place.data(), kCols, kRows, kCols}, x.data(), kCols, 3.4F);
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kCols; ++j) {
      const auto at = static_cast<size_t>(i * kCols + j);
      const float expected =
          std::fma(3.4F, FloatFromBF16(x[at].bits), product[at]);
      EXPECT_EQ(in_place[at], expected);
      EXPECT_EQ(out[static_cast<size_t>(i * (kCols + 1) + j)], expected);
    }
    EXPECT_EQ(out[static_cast<size_t>(i * (kCols + 1) + kCols)], kPassesGuard);
  }
}

TEST(MatrixPasses, MirrorSquareCopiesWhatIsBelowTheDiagonal) {
  for (const int64_t side : {1, 5, 16, 17, 32, 100}) {
    const int64_t ld = side + 4;
    const std::vector<float> before = Numbered(side, ld);
    std::vector<float> square = before;
    MirrorSquare({square.data(), ld, side, side});
    for (int64_t i = 0; i < side; ++i) {
      for (int64_t j = 0; j < ld; ++j) {
        const int64_t from = j < side && j > i ? j * ld + i : i * ld + j;
        EXPECT_EQ(square[static_cast<size_t>(i * ld + j)],
                  before[static_cast<size_t>(from)]);
      }
    }
  }
}

}  // namespace
}  // namespace muonstore
