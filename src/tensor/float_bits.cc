#include "src/tensor/float_bits.h"

#include <string>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

// A sign bit, exponent bits and mantissa bits.
struct Format {
  int mantissa_bits;
  int bias;
  enum class Special {
    kIeee,     // Exponent of ones: infinity or NaN.
    kFinite,   // "fn": only all ones is a NaN, and there is no infinity.
    kNoMinus,  // "fnuz": the pattern of -0 is the NaN, and no infinity.
  } special;
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// 2^exponent, also below float's normal range.
constexpr float PowerOfTwo(int exponent) {
  double value = 1;
  for (; exponent > 0; --exponent) {
    value *= 2;
  }
  for (; exponent < 0; ++exponent) {
    value /= 2;
  }
  return static_cast<float>(value);
}

// The value of a bit pattern whose upper bit, the sign, is 0.
constexpr float Magnitude(const Format& format, int bits) {
  const int exponent = bits >> format.mantissa_bits;
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int top = 0x7F >> format.mantissa_bits;
  if (format.special == Format::Special::kIeee && exponent == top) {
    if (mantissa != 0) {
      return kNan;
    }
    return kInfinity;
  }
  if (format.special == Format::Special::kFinite && bits == 0x7F) {
    return kNan;
  }
  const int digits =
      exponent == 0 ? mantissa : mantissa + (1 << format.mantissa_bits);
  const int scale = (exponent == 0 ? 1 : exponent) - format.bias;
  return static_cast<float>(digits) * PowerOfTwo(scale - format.mantissa_bits);
}

constexpr std::array<float, 256> MakeValues(const Format& format) {
  std::array<float, 256> values{};
  for (int bits = 0; bits < 128; ++bits) {
    const float magnitude = Magnitude(format, bits);
    values[static_cast<size_t>(bits)] = magnitude;
    values[static_cast<size_t>(bits) + 128] = -magnitude;
  }
  if (format.special == Format::Special::kNoMinus) {
    values[0x80] = kNan;
  }
  return values;
}

// Powers of two without sign, zero or infinity.
constexpr std::array<float, 256> MakeE8M0Values() {
  std::array<float, 256> values{};
  for (int bits = 0; bits < 255; ++bits) {
    values[static_cast<size_t>(bits)] = PowerOfTwo(bits - 127);
  }
  values[255] = kNan;
  return values;
}

constexpr std::array<float, 256> kE4M3FN =
    MakeValues({3, 7, Format::Special::kFinite});
constexpr std::array<float, 256> kE4M3FNUZ =
    MakeValues({3, 8, Format::Special::kNoMinus});
constexpr std::array<float, 256> kE5M2 =
    MakeValues({2, 15, Format::Special::kIeee});
constexpr std::array<float, 256> kE5M2FNUZ =
    MakeValues({2, 16, Format::Special::kNoMinus});
constexpr std::array<float, 256> kE8M0FNU = MakeE8M0Values();

}  // namespace

const std::array<float, 256>& Float8Values(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3FN:
      return kE4M3FN;
    case DType::kF8E4M3FNUZ:
      return kE4M3FNUZ;
    case DType::kF8E5M2:
      return kE5M2;
    case DType::kF8E5M2FNUZ:
      return kE5M2FNUZ;
    case DType::kF8E8M0FNU:
      return kE8M0FNU;
    default:
      throw Error(ErrorCode::kInternal,
                  StrCat(DTypeName(dtype), " is not an 8-bit float"));
  }
}

}  // namespace muonstore
