// Rounding a new weight while it is in a register.
//
// What: one type for each dtype of compute weights, chosen outside of a pass's
//   loop. Sizes are checked before.
// Ownership, threads, failures: see compute_weight.h.

#ifndef MUONSTORE_SRC_KERNEL_STORE_WEIGHT_H_
#define MUONSTORE_SRC_KERNEL_STORE_WEIGHT_H_

#include <cstring>

#include "src/kernel/compute_weight.h"
#include "src/kernel/simd.h"
#include "src/kernel/state_span.h"
#include "src/tensor/float_bits.h"

namespace muonstore {

struct NoWeight {
  MUONSTORE_INLINE void Store(size_t /*i*/, float /*value*/) const {}
};

struct F32Weight {
  std::byte* bytes;
  MUONSTORE_INLINE void Store(size_t i, float value) const {
    std::memcpy(bytes + i * sizeof(value), &value, sizeof(value));
  }
};

struct BF16Weight {
  std::byte* bytes;
  MUONSTORE_INLINE void Store(size_t i, float value) const {
    const uint16_t bits = BF16FromFloat(value);
    std::memcpy(bytes + i * sizeof(bits), &bits, sizeof(bits));
  }
};

struct F16Weight {
  std::byte* bytes;
  MUONSTORE_INLINE void Store(size_t i, float value) const {
    const uint16_t bits = F16FromFloat(value);
    std::memcpy(bytes + i * sizeof(bits), &bits, sizeof(bits));
  }
};

// Calls body(weight) with the type for `weights`.
template <typename Body>
MUONSTORE_INLINE void WithWeight(const ComputeWeights& weights, Body body) {
  if (weights.bytes.empty()) {
    body(NoWeight{});
  } else if (weights.dtype == DType::kF32) {
    body(F32Weight{weights.bytes.data()});
  } else if (weights.dtype == DType::kBF16) {
    body(BF16Weight{weights.bytes.data()});
  } else {
    body(F16Weight{weights.bytes.data()});
  }
}

// Error(kInvalidArgument) unless `weights` is empty or fits `num_elements`.
void CheckWeights(const ComputeWeights& weights, size_t num_elements);

// Error(kInvalidArgument) naming `what` unless both sides have `expected`
// elements.
void CheckState(const char* what, size_t expected, const StateSpan& found);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_STORE_WEIGHT_H_
