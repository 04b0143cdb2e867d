#include "src/inspect/widening_rest.h"

#include <cmath>
#include <cstdint>
#include <cstring>

namespace muonstore {
namespace {

// `widened` is the double nearest to `magnitude`: at most 2^64.
double RestOf(uint64_t magnitude, double widened) {
  constexpr double kTwoTo64 = 18446744073709551616.0;
  // Modulo 2^64; the rest is less than 2^11 either way.
  const uint64_t rounded =
      widened >= kTwoTo64 ? 0 : static_cast<uint64_t>(widened);
  return static_cast<double>(static_cast<int64_t>(magnitude - rounded));
}

template <typename Integer>
Integer Load(std::span<const std::byte> bytes, size_t i) {
  Integer value = 0;
  std::memcpy(&value, bytes.data() + i * sizeof(value), sizeof(value));
  return value;
}

}  // namespace

std::vector<double> RestsOfWidening(DType dtype,
                                    std::span<const std::byte> bytes,
                                    std::span<const double> widened) {
  std::vector<double> rests;
  if (dtype != DType::kI64 && dtype != DType::kU64) {
    return rests;
  }
  rests.resize(widened.size());
  for (size_t i = 0; i < widened.size(); ++i) {
    const auto value = Load<uint64_t>(bytes, i);
    const bool negative = dtype == DType::kI64 && widened[i] < 0;
    const double rest =
        RestOf(negative ? 0 - value : value, std::abs(widened[i]));
    rests[i] = negative ? -rest : rest;
  }
  return rests;
}

}  // namespace muonstore
