#include "src/kernel/matrix_passes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "src/kernel/simd.h"
#include "src/kernel/transpose.h"
#include "src/tensor/float_bits.h"

namespace muonstore {
namespace {

// What is left at the edges of 16 x 16 pieces. `convert` is applied to each
// element on the way.
template <typename Out, typename Convert>
MUONSTORE_INLINE void TransposePiece(const Block<const float>& in, Out* out,
                                     int64_t out_ld, Convert convert) {
  for (int64_t j = 0; j < in.cols; ++j) {
    for (int64_t i = 0; i < in.rows; ++i) {
      out[j * out_ld + i] = convert(in.data[i * in.ld + j]);
    }
  }
}

template <typename Out, typename Convert>
MUONSTORE_INLINE void TransposeWholePiece(const float* in, int64_t ld, Out* out,
                                          int64_t out_ld, Convert convert) {
  Square16 square;
  for (size_t i = 0; i < square.size(); ++i) {
    LoadRow(square, i, in + static_cast<int64_t>(i) * ld);
  }
  TransposeSquare(square);
  for (size_t j = 0; j < square.size(); ++j) {
    const auto row =
        std::bit_cast<std::array<float, kTransposeSide>>(square[j]);
    Out* __restrict to = out + static_cast<int64_t>(j) * out_ld;
    for (size_t i = 0; i < row.size(); ++i) {
      to[i] = convert(row[i]);
    }
  }
}

template <typename Out, typename Convert>
MUONSTORE_INLINE void TransposeLoop(const Block<const float>& in, Out* out,
                                    int64_t out_ld, Convert convert) {
  constexpr int64_t kPiece = kTransposeSide;
  for (int64_t i = 0; i < in.rows; i += kPiece) {
    for (int64_t j = 0; j < in.cols; j += kPiece) {
      const float* from = in.data + i * in.ld + j;
      Out* to = out + j * out_ld + i;
      if (i + kPiece <= in.rows && j + kPiece <= in.cols) {
        TransposeWholePiece(from, in.ld, to, out_ld, convert);
      } else {
        TransposePiece(
            Block<const float>{from, in.ld, std::min(kPiece, in.rows - i),
                               std::min(kPiece, in.cols - j)},
            to, out_ld, convert);
      }
    }
  }
}

MUONSTORE_INLINE float ToFloat(float value) { return value; }
MUONSTORE_INLINE float ToFloat(BF16 value) { return FloatFromBF16(value.bits); }

template <typename T>
MUONSTORE_INLINE void CombineLoop(const Block<float>& square, const T* base,
                                  int64_t base_ld, float b, float c) {
  for (int64_t i = 0; i < square.rows; ++i) {
    float* __restrict to = square.data + i * square.ld;
    const T* __restrict from = base + i * base_ld;
    for (int64_t j = 0; j < square.cols; ++j) {
      to[j] = std::fma(c, to[j], b * ToFloat(from[j]));
    }
  }
}

template <typename T>
MUONSTORE_INLINE void AddScaledToLoop(const Block<float>& product, const T* x,
                                      int64_t x_ld, float a) {
  for (int64_t i = 0; i < product.rows; ++i) {
    float* __restrict to = product.data + i * product.ld;
    const T* __restrict from = x + i * x_ld;
    for (int64_t j = 0; j < product.cols; ++j) {
      to[j] = std::fma(a, ToFloat(from[j]), to[j]);
    }
  }
}

}  // namespace

MUONSTORE_SIMD
double SumOfSquares(const Block<const float>& block) {
  constexpr int64_t kLanes = 16;
  std::array<double, kLanes> lanes = {};
  double rest = 0;
  for (int64_t i = 0; i < block.rows; ++i) {
    const float* row = block.data + i * block.ld;
    int64_t j = 0;
    for (; j + kLanes <= block.cols; j += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const double value = row[j + lane];
        lanes[static_cast<size_t>(lane)] += value * value;
      }
    }
    for (; j < block.cols; ++j) {
      const double value = row[j];
      rest += value * value;
    }
  }
  double sum = rest;
  for (const double lane : lanes) {
    sum += lane;
  }
  return sum;
}

MUONSTORE_SIMD
void ScaleInto(const Block<const float>& in, double scale, float* out,
               int64_t out_ld) {
  for (int64_t i = 0; i < in.rows; ++i) {
    const float* from = in.data + i * in.ld;
    float* to = out + i * out_ld;
    for (int64_t j = 0; j < in.cols; ++j) {
      to[j] = static_cast<float>(from[j] * scale);
    }
  }
}

MUONSTORE_SIMD
void ScaleTransposedInto(const Block<const float>& in, double scale, float* out,
                         int64_t out_ld) {
  TransposeLoop(in, out, out_ld, [scale](float value) {
    return static_cast<float>(value * scale);
  });
}

void CopyInto(const Block<const float>& in, float* out, int64_t out_ld) {
  for (int64_t i = 0; i < in.rows; ++i) {
    std::copy_n(in.data + i * in.ld, in.cols, out + i * out_ld);
  }
}

MUONSTORE_SIMD
void TransposeInto(const Block<const float>& in, float* out, int64_t out_ld) {
  TransposeLoop(in, out, out_ld, [](float value) { return value; });
}

MUONSTORE_SIMD
void RoundInto(const Block<const float>& in, BF16* out, int64_t out_ld) {
  for (int64_t i = 0; i < in.rows; ++i) {
    const float* from = in.data + i * in.ld;
    BF16* to = out + i * out_ld;
    for (int64_t j = 0; j < in.cols; ++j) {
      to[j].bits = BF16FromFloat(from[j]);
    }
  }
}

MUONSTORE_SIMD
void RoundTransposedInto(const Block<const float>& in, BF16* out,
                         int64_t out_ld) {
  TransposeLoop(in, out, out_ld,
                [](float value) { return BF16{BF16FromFloat(value)}; });
}

MUONSTORE_SIMD
void MirrorSquare(const Block<float>& square) {
  constexpr int64_t kPiece = kTransposeSide;
  for (int64_t j = 0; j < square.cols; j += kPiece) {
    const int64_t end = std::min(square.rows, j + kPiece);
    for (int64_t i = j; i < end; ++i) {
      for (int64_t k = j; k < i; ++k) {
        square.data[k * square.ld + i] = square.data[i * square.ld + k];
      }
    }
    const float* below = square.data + end * square.ld + j;
    TransposeLoop(
        Block<const float>{below, square.ld, square.rows - end, end - j},
        square.data + j * square.ld + end, square.ld,
        [](float value) { return value; });
  }
}

MUONSTORE_SIMD
void CombineSquare(const Block<float>& square, const float* base,
                   int64_t base_ld, float b, float c) {
  CombineLoop(square, base, base_ld, b, c);
}

MUONSTORE_SIMD
void CombineSquare(const Block<float>& square, const BF16* base,
                   int64_t base_ld, float b, float c) {
  CombineLoop(square, base, base_ld, b, c);
}

MUONSTORE_SIMD
void AddScaled(const Block<float>& x, const float* product, int64_t product_ld,
               float a) {
  for (int64_t i = 0; i < x.rows; ++i) {
    float* __restrict to = x.data + i * x.ld;
    const float* __restrict from = product + i * product_ld;
    for (int64_t j = 0; j < x.cols; ++j) {
      to[j] = std::fma(a, to[j], from[j]);
    }
  }
}

MUONSTORE_SIMD
void AddScaledTo(const Block<float>& product, const float* x, int64_t x_ld,
                 float a) {
  AddScaledToLoop(product, x, x_ld, a);
}

MUONSTORE_SIMD
void AddScaledTo(const Block<float>& product, const BF16* x, int64_t x_ld,
                 float a) {
  AddScaledToLoop(product, x, x_ld, a);
}

MUONSTORE_SIMD
void AddScaledInto(const Block<const float>& product, const BF16* x,
                   int64_t x_ld, float a, float* out, int64_t out_ld) {
  for (int64_t i = 0; i < product.rows; ++i) {
    float* __restrict to = out + i * out_ld;
    const float* __restrict sum = product.data + i * product.ld;
    const BF16* __restrict from = x + i * x_ld;
    for (int64_t j = 0; j < product.cols; ++j) {
      to[j] = std::fma(a, ToFloat(from[j]), sum[j]);
    }
  }
}

}  // namespace muonstore
