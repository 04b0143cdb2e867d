#include "src/kernel/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/kernel/simd.h"

namespace muonstore {
namespace {

constexpr int kDigitBits = 32;
constexpr int64_t kBase = int64_t{1} << kDigitBits;
// Squares of floats are multiples of 2^-298; the lowest digit's unit lies a
// mantissa below, so that each double in between is whole digits.
constexpr int kLowestExponent = -352;
// Each addition moves a digit by less than 2^32.
constexpr int64_t kMaxPending = int64_t{1} << 28;

// Values are summed in blocks. Within one, squares are split into slices: a
// slice holds the part of each square that is a multiple of a unit, chosen so
// that the slice's sum over a block is exact in double, in any order. What is
// left goes to the next slice, whose unit is kSliceBits lower.
constexpr size_t kBlock = 1024;
constexpr int kBlockBits = 10;
constexpr int kSliceBits = 52 - kBlockBits;

// The largest magnitude among `values`, as bits: 0x7F800000 and above where one
// is not finite.
MUONSTORE_SIMD
uint32_t Squares(const float* __restrict values, size_t count, float factor,
                 double* __restrict squares) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const float value = values[i] * factor;
    const uint32_t magnitude = std::bit_cast<uint32_t>(value) & 0x7FFFFFFFU;
    largest = std::max(largest, magnitude);
    squares[i] = static_cast<double>(value) * static_cast<double>(value);
  }
  return largest;
}

// Takes the multiples of the unit of `anchor` out of `squares`.
struct Slice {
  double sum;  // Exact, so that its order does not matter.
  bool rest;   // Something is left in `squares`.
};

MUONSTORE_SIMD
Slice TakeSlice(double* squares, size_t count, double anchor) {
  double sum = 0;
  uint64_t rest_bits = 0;
#pragma omp simd reduction(+ : sum) reduction(| : rest_bits)
  for (size_t i = 0; i < count; ++i) {
    const double multiple = (squares[i] + anchor) - anchor;
    const double rest = squares[i] - multiple;
    sum += multiple;
    squares[i] = rest;
    rest_bits |= std::bit_cast<uint64_t>(rest);
  }
  return {.sum = sum, .rest = rest_bits << 1 != 0};
}

int64_t RemoveNonFinite(std::span<double> squares) {
  int64_t num_removed = 0;
  for (double& square : squares) {
    if (!std::isfinite(square)) {
      square = 0;
      ++num_removed;
    }
  }
  return num_removed;
}

}  // namespace

ExactSum ExactSum::FromWords(const Words& words) {
  if (words[0] < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "the words of an exact sum count fewer values than none",
                {.found = StrCat(words[0])});
  }
  ExactSum sum;
  sum.num_nonfinite_ = words[0];
  std::copy(words.begin() + 1, words.end(), sum.digits_.begin());
  sum.digits_ = sum.Normalized();
  if (sum.digits_.back() < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "the words of an exact sum of squares are negative");
  }
  return sum;
}

void ExactSum::AddSquares(std::span<const float> values, float factor) {
  std::array<double, kBlock> buffer = {};
  while (!values.empty()) {
    const size_t count = std::min(values.size(), kBlock);
    const std::span<double> squares(buffer.data(), count);
    const uint32_t largest_bits =
        Squares(values.data(), count, factor, buffer.data());
    values = values.subspan(count);
    double largest = static_cast<double>(std::bit_cast<float>(largest_bits));
    largest *= largest;
    if (largest_bits >= 0x7F800000U) {
      num_nonfinite_ += RemoveNonFinite(squares);
      largest = *std::max_element(squares.begin(), squares.end());
    }
    if (largest > 0) {
      AddBlock(squares, std::ilogb(largest));
    }
  }
}

void ExactSum::AddBlock(std::span<double> squares, int exponent) {
  // Adding 1.5 * 2^k and taking it away again rounds what is below 2^(k - 1) to
  // a multiple of 2^(k - 52); 1024 such values below 2^(k - 9) sum exactly.
  int k = exponent + 1 + kBlockBits;
  Slice slice = {};
  do {
    slice = TakeSlice(squares.data(), squares.size(), std::ldexp(1.5, k));
    AddExact(slice.sum);
    // What is left is 2^(k - 53) at most.
    k -= kSliceBits;
  } while (slice.rest);
}

void ExactSum::AddExact(double value) {
  if (value == 0) {
    return;
  }
  int exponent = 0;
  const auto mantissa =
      static_cast<int64_t>(std::ldexp(std::frexp(value, &exponent), 53));
  const int shift = exponent - 53 - kLowestExponent;
  const auto magnitude = static_cast<unsigned __int128>(std::abs(mantissa))
                         << (shift % kDigitBits);
  const int64_t sign = mantissa < 0 ? -1 : 1;
  auto digit = static_cast<size_t>(shift / kDigitBits);
  for (auto rest = magnitude; rest != 0; rest >>= kDigitBits, ++digit) {
    digits_[digit] += sign * static_cast<int64_t>(rest & (kBase - 1));
  }
  if (++num_pending_ >= kMaxPending) {
    digits_ = Normalized();
    num_pending_ = 0;
  }
}

ExactSum::Digits ExactSum::Normalized() const {
  Digits digits = digits_;
  for (size_t i = 0; i + 1 < kNumDigits; ++i) {
    const int64_t carry = digits[i] >> kDigitBits;  // Rounds down.
    digits[i] -= carry * kBase;
    digits[i + 1] += carry;
  }
  return digits;
}

void ExactSum::Merge(const ExactSum& other) {
  num_nonfinite_ += other.num_nonfinite_;
  digits_ = Normalized();
  const Digits added = other.Normalized();
  for (size_t i = 0; i < kNumDigits; ++i) {
    digits_[i] += added[i];
  }
  digits_ = Normalized();
  num_pending_ = 0;
}

ExactSum::Words ExactSum::words() const {
  Words words;
  words[0] = num_nonfinite_;
  const Digits digits = Normalized();
  std::copy(digits.begin(), digits.end(), words.begin() + 1);
  return words;
}

double ExactSum::Round() const {
  if (!finite()) {
    return std::numeric_limits<double>::infinity();
  }
  const Digits digits = Normalized();
  size_t top = kNumDigits;
  while (top > 0 && digits[top - 1] == 0) {
    --top;
  }
  // The first digits that are not zero fill 96 bits: more than 64 are
  // significant, so that a double and what decides its rounding are there.
  unsigned __int128 high = 0;
  const size_t first = top > 3 ? top - 3 : 0;
  for (size_t i = top; i > first; --i) {
    high = (high << kDigitBits) + static_cast<uint64_t>(digits[i - 1]);
  }
  bool sticky = false;
  for (size_t i = 0; i < first; ++i) {
    sticky = sticky || digits[i] != 0;
  }
  // To 64 bits, the last of which says whether anything was dropped.
  int exponent = kLowestExponent + static_cast<int>(first) * kDigitBits;
  while (high >> 64 != 0) {
    sticky = sticky || (high & 1) != 0;
    high >>= 1;
    ++exponent;
  }
  const uint64_t bits = static_cast<uint64_t>(high) | (sticky ? 1U : 0U);
  return std::ldexp(static_cast<double>(bits), exponent);
}

}  // namespace muonstore
