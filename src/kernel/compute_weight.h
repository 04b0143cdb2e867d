// Where an update also leaves the rounded weights that the model computes with.
//
// Ownership: the bytes belong to the caller and overlap nothing else.
// Failures: the passes throw Error(kInvalidArgument) for a dtype other than
//   f32, bf16 and f16 and for a wrong number of bytes.

#ifndef MUONSTORE_SRC_KERNEL_COMPUTE_WEIGHT_H_
#define MUONSTORE_SRC_KERNEL_COMPUTE_WEIGHT_H_

#include <cstddef>
#include <span>

#include "muonstore/dtype.h"

namespace muonstore {

// Packed elements, rounded to nearest even; beyond f16's range to infinity.
// Empty: none are wanted.
struct ComputeWeights {
  DType dtype = DType::kBF16;
  std::span<std::byte> bytes = {};
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_COMPUTE_WEIGHT_H_
