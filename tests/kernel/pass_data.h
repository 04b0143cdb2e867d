// What the tests of element-wise passes share.
#ifndef MUONSTORE_TESTS_KERNEL_PASS_DATA_H_
#define MUONSTORE_TESTS_KERNEL_PASS_DATA_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "muonstore/dtype.h"
#include "src/kernel/compute_weight.h"

namespace muonstore {

// Half a unit in the last place of 1.
inline constexpr double kF32Eps = 0x1p-24;

inline std::vector<float> NormalFloats(size_t count, uint64_t seed,
                                       float scale = 1.0F) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(rng);
  return values;
}

// Lengths and starts around the widths of vectors: a pass over any of these
// ranges must give each element the bits that it gets in a pass over all.
struct Cut {
  size_t begin;
  size_t count;
};

inline std::vector<Cut> ManyCuts(size_t size) {
  std::vector<Cut> cuts;
  for (size_t begin = 0; begin < 34; ++begin) {
    for (const size_t count : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100}) {
      if (begin + count <= size) cuts.push_back({begin, count});
    }
  }
  return cuts;
}

inline bool SameBits(std::span<const float> left,
                     std::span<const float> right) {
  return left.size() == right.size() &&
         std::memcmp(left.data(), right.data(), left.size_bytes()) == 0;
}

// Room for compute weights of a dtype.
struct WeightBuffer {
  DType dtype;
  std::vector<std::byte> bytes;

  WeightBuffer(DType type, size_t count)
      : dtype(type), bytes(count * static_cast<size_t>(SizeBytes(type))) {}
  ComputeWeights view(size_t begin, size_t count) {
    const auto size = static_cast<size_t>(SizeBytes(dtype));
    return {dtype, std::span(bytes).subspan(begin * size, count * size)};
  }
};

}  // namespace muonstore

#endif  // MUONSTORE_TESTS_KERNEL_PASS_DATA_H_
