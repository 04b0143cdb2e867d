#include "converters/element_converter.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace muonstore {
namespace {

// Elements that pass through the scratch space at once.
constexpr size_t kBlockElements = 8192;

bool FitsFloat(DType dtype) {
  return IsFloatingPoint(dtype) && dtype != DType::kF64;
}

// Rounds to odd: an exact double on its way to a type narrower than float is
// then rounded only once in effect.
float RoundToOdd(double value) {
  const auto nearest = static_cast<float>(value);
  if (!std::isfinite(value) || static_cast<double>(nearest) == value) {
    return nearest;
  }
  // The neighbour towards zero, with the last bit set.
  float toward_zero = nearest;
  if (std::abs(static_cast<double>(nearest)) > std::abs(value)) {
    toward_zero = std::nextafter(nearest, 0.0F);
  }
  return std::bit_cast<float>(std::bit_cast<uint32_t>(toward_zero) | 1U);
}

// Larger for dtypes with a larger largest value.
int RangeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 3;
    case DType::kF32:
      return 2;
    case DType::kBF16:
    case DType::kF8E8M0FNU:
      return 1;
    default:
      return 0;
  }
}

bool IsInfinite(DType dtype, std::span<const std::byte> elements, size_t i) {
  constexpr uint16_t kNoSign = 0x7fff;
  constexpr uint16_t kInfinite16 = 0x7c00;
  constexpr uint16_t kInfiniteBf16 = 0x7f80;
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, elements.data() + i * sizeof(value), sizeof(value));
    return std::isinf(value);
  }
  uint16_t bits = 0;
  std::memcpy(&bits, elements.data() + i * sizeof(bits), sizeof(bits));
  return (bits & kNoSign) ==
         (dtype == DType::kF16 ? kInfinite16 : kInfiniteBf16);
}

template <typename Value>
int64_t CountOverflows(const std::vector<Value>& values, DType to,
                       std::span<const std::byte> out) {
  int64_t count = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    count += IsInfinite(to, out, i) && std::isfinite(values[i]) ? 1 : 0;
  }
  return count;
}

}  // namespace

bool CanOverflow(DType from, DType to, double scale) {
  if (!IsFloatingPoint(from) || to == DType::kF64) return false;
  return RangeOf(from) > RangeOf(to) || scale > 1;
}

bool CanConvert(DType from, DType to, double scale) {
  if (from == to && scale == 1) return true;
  const bool is_target = to == DType::kF64 || to == DType::kF32 ||
                         to == DType::kF16 || to == DType::kBF16;
  return IsFloatingPoint(from) && is_target;
}

int64_t ElementConverter::Convert(DType from, std::span<const std::byte> in,
                                  DType to, double scale,
                                  std::span<std::byte> out) {
  if (from == to && scale == 1) {
    std::copy(in.begin(), in.end(), out.begin());
    return 0;
  }
  const auto in_item = static_cast<size_t>(SizeBytes(from));
  const auto out_item = static_cast<size_t>(SizeBytes(to));
  const size_t count = in.size() / in_item;
  int64_t num_overflows = 0;
  for (size_t at = 0; at < count; at += kBlockElements) {
    const size_t n = std::min(kBlockElements, count - at);
    num_overflows +=
        ConvertBlock(from, in.subspan(at * in_item, n * in_item), to, scale,
                     out.subspan(at * out_item, n * out_item));
  }
  return num_overflows;
}

int64_t ElementConverter::ConvertBlock(DType from,
                                       std::span<const std::byte> in, DType to,
                                       double scale, std::span<std::byte> out) {
  const size_t count = in.size() / static_cast<size_t>(SizeBytes(from));
  const bool can_overflow = CanOverflow(from, to, scale);
  floats_.resize(count);
  if (scale == 1 && FitsFloat(from)) {
    ConvertToF32(from, in, floats_);
    ConvertFromF32(floats_, to, out);
    return can_overflow ? CountOverflows(floats_, to, out) : 0;
  }
  doubles_.resize(count);
  ConvertToF64(from, in, doubles_);
  for (double& value : doubles_) value *= scale;
  if (to == DType::kF64) {
    std::memcpy(out.data(), doubles_.data(), out.size());
    return 0;
  }
  std::transform(doubles_.begin(), doubles_.end(), floats_.begin(),
                 [to](double value) {
                   return to == DType::kF32 ? static_cast<float>(value)
                                            : RoundToOdd(value);
                 });
  ConvertFromF32(floats_, to, out);
  return can_overflow ? CountOverflows(doubles_, to, out) : 0;
}

}  // namespace muonstore
