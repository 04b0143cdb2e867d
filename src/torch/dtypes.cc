#include <array>
#include <string>
#include <utility>
#include <vector>

#include "muonstore/error.h"
#include "muonstore/torch.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

constexpr std::array kPairs = {
    std::pair{DType::kF64, at::ScalarType::Double},
    std::pair{DType::kF32, at::ScalarType::Float},
    std::pair{DType::kF16, at::ScalarType::Half},
    std::pair{DType::kBF16, at::ScalarType::BFloat16},
    std::pair{DType::kF8E4M3FN, at::ScalarType::Float8_e4m3fn},
    std::pair{DType::kF8E4M3FNUZ, at::ScalarType::Float8_e4m3fnuz},
    std::pair{DType::kF8E5M2, at::ScalarType::Float8_e5m2},
    std::pair{DType::kF8E5M2FNUZ, at::ScalarType::Float8_e5m2fnuz},
    std::pair{DType::kF8E8M0FNU, at::ScalarType::Float8_e8m0fnu},
    std::pair{DType::kF4E2M1FNx2, at::ScalarType::Float4_e2m1fn_x2},
    std::pair{DType::kI64, at::ScalarType::Long},
    std::pair{DType::kI32, at::ScalarType::Int},
    std::pair{DType::kI16, at::ScalarType::Short},
    std::pair{DType::kI8, at::ScalarType::Char},
    std::pair{DType::kU64, at::ScalarType::UInt64},
    std::pair{DType::kU32, at::ScalarType::UInt32},
    std::pair{DType::kU16, at::ScalarType::UInt16},
    std::pair{DType::kU8, at::ScalarType::Byte},
    std::pair{DType::kBool, at::ScalarType::Bool},
    std::pair{DType::kC128, at::ScalarType::ComplexDouble},
    std::pair{DType::kC64, at::ScalarType::ComplexFloat},
    std::pair{DType::kC32, at::ScalarType::ComplexHalf},
};

}  // namespace

at::ScalarType ScalarTypeOf(DType dtype) {
  for (const auto& [ours, torchs] : kPairs) {
    if (ours == dtype) return torchs;
  }
  throw Error(ErrorCode::kUnsupported,
              StrCat("LibTorch has no ", DTypeName(dtype)));
}

DType DTypeOf(at::ScalarType type) {
  for (const auto& [ours, torchs] : kPairs) {
    if (torchs == type) return ours;
  }
  throw Error(ErrorCode::kUnsupported,
              StrCat("a store has no tensors of type ", c10::toString(type)));
}

Shape ShapeOf(const at::Tensor& tensor) {
  return Shape(
      std::vector<int64_t>(tensor.sizes().begin(), tensor.sizes().end()));
}

}  // namespace muonstore
