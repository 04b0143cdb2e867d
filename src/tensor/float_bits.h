// Bit patterns of the narrow floating-point types.
//
// What: widening of one element to float, exact, and rounding of one float to
//   16 bits. The 16-bit functions are selects over integers and floats, without
//   branches, so that a loop over them vectorizes.
// Ownership, threads, failures: pure functions that do not fail.
#ifndef MUONSTORE_SRC_TENSOR_FLOAT_BITS_H_
#define MUONSTORE_SRC_TENSOR_FLOAT_BITS_H_

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include "muonstore/dtype.h"

namespace muonstore {

static_assert(std::numeric_limits<float>::is_iec559);
static_assert(std::numeric_limits<double>::is_iec559);
static_assert(std::endian::native == std::endian::little);

inline float FloatFromBF16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline float FloatFromF16(uint16_t bits) {
  // What the exponent bias grows by from 5 to 8 exponent bits.
  constexpr uint32_t kRebias = (127U - 15U) << 23;
  const uint32_t magnitude = bits & 0x7FFFU;
  const uint32_t sign = (bits & 0x8000U) << 16;
  const uint32_t normal = (magnitude << 13) + kRebias;
  // Infinity and NaN: the exponent is all ones, so it is moved once more.
  const uint32_t finite_or_not =
      magnitude >= 0x7C00U ? normal + kRebias : normal;
  // Zero and subnormals: multiples of 2^-24, exact in float.
  const float tiny =
      static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24F;
  const uint32_t value =
      magnitude < 0x0400U ? std::bit_cast<uint32_t>(tiny) : finite_or_not;
  return std::bit_cast<float>(value | sign);
}

// To nearest even; a NaN keeps its sign and upper payload and becomes quiet.
inline uint16_t BF16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x0040U;
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return static_cast<uint16_t>(is_nan ? quiet_nan : rounded);
}

// To nearest even, subnormals included; a NaN as for BF16FromFloat.
inline uint16_t F16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  const uint32_t sign = (bits >> 16) & 0x8000U;
  // Normal results; from 65520 on the carry gives infinity.
  const uint32_t normal =
      (magnitude - ((127U - 15U) << 23) + 0x0FFFU + ((magnitude >> 13) & 1U)) >>
      13;
  // Below 2^-14: in the binade of 0.5 a float's last bit is 2^-24, the unit of
  // f16 subnormals, so that the addition does the rounding.
  const uint32_t tiny =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) -
      std::bit_cast<uint32_t>(0.5F);
  const uint32_t quiet_nan = 0x7E00U | ((magnitude >> 13) & 0x03FFU);
  uint32_t result = magnitude < 0x38800000U ? tiny : normal;
  result = magnitude >= 0x47800000U ? 0x7C00U : result;
  result = magnitude > 0x7F800000U ? quiet_nan : result;
  return static_cast<uint16_t>(result | sign);
}

// The 256 values of an 8-bit floating-point dtype, by bit pattern.
const std::array<float, 256>& Float8Values(DType dtype);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_TENSOR_FLOAT_BITS_H_
