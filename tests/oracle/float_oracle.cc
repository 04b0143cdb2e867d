#include "tests/oracle/float_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace muonstore::oracle {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

double Decode(const Format& format, uint32_t bits) {
  const uint32_t ones = (1U << format.exponent_bits) - 1U;
  const uint32_t mantissa = bits % (1U << format.mantissa_bits);
  const uint32_t exponent = (bits >> format.mantissa_bits) % (ones + 1U);
  const bool is_negative =
      (bits >> (format.mantissa_bits + format.exponent_bits)) != 0;
  const double sign = is_negative ? -1.0 : 1.0;
  const uint32_t full = (1U << format.mantissa_bits) - 1U;
  switch (format.specials) {
    case Specials::kIeee:
      if (exponent == ones) {
        return mantissa == 0 ? sign * kInfinity : kNan;
      }
      break;
    case Specials::kOneNan:
      if (exponent == ones && mantissa == full) {
        return kNan;
      }
      break;
    case Specials::kMinusZero:
      if (is_negative && exponent == 0 && mantissa == 0) {
        return kNan;
      }
      break;
  }
  const double fraction = std::ldexp(mantissa, -format.mantissa_bits);
  return exponent == 0
             ? sign * std::ldexp(fraction, 1 - format.bias)
             : sign * std::ldexp(1.0 + fraction,
                                 static_cast<int>(exponent) - format.bias);
}

Rounder::Rounder(const Format& format) {
  const uint32_t infinity = ((1U << format.exponent_bits) - 1U)
                            << format.mantissa_bits;
  for (uint32_t bits = 0; bits < infinity; ++bits) {
    values_.push_back(Decode(format, bits));
  }
  values_.push_back(
      std::ldexp(1.0, (1 << format.exponent_bits) - 1 - format.bias));
}

uint16_t Rounder::Round(double value) const {
  return static_cast<uint16_t>(RoundMagnitude(std::fabs(value)) |
                               (std::signbit(value) ? 0x8000 : 0));
}

uint16_t Rounder::RoundMagnitude(double value) const {
  const auto above = std::lower_bound(values_.begin(), values_.end(), value);
  const auto index = static_cast<size_t>(above - values_.begin());
  if (above == values_.end()) {
    return static_cast<uint16_t>(values_.size() - 1);
  }
  if (*above == value) {
    return static_cast<uint16_t>(index);
  }
  const double to_above = *above - value;
  const double to_below = value - values_[index - 1];
  const bool take_above =
      to_above < to_below || (to_above == to_below && index % 2 == 0);
  return static_cast<uint16_t>(take_above ? index : index - 1);
}

}  // namespace muonstore::oracle
