// The dtypes that gradients and compute weights may have: f32, bf16 or f16.
//
// Threads, failures: pure functions; RequireTrainingDType throws.

#ifndef MUONSTORE_SRC_TENSOR_TRAINING_DTYPE_H_
#define MUONSTORE_SRC_TENSOR_TRAINING_DTYPE_H_

#include <string>

#include "muonstore/dtype.h"
#include "muonstore/error.h"

namespace muonstore {

inline constexpr const char* kTrainingDTypes = "f32, bf16 or f16";

constexpr bool IsTrainingDType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

// Otherwise an Error that says what was expected and found.
inline void RequireTrainingDType(DType dtype, ErrorCode code,
                                 const char* message,
                                 const std::string& tensor = {}) {
  if (IsTrainingDType(dtype)) return;
  throw Error(code, message,
              {.tensor = tensor,
               .expected = kTrainingDTypes,
               .found = std::string(DTypeName(dtype))});
}

}  // namespace muonstore

#endif  // MUONSTORE_SRC_TENSOR_TRAINING_DTYPE_H_
