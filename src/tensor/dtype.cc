#include "muonstore/dtype.h"

#include <array>

namespace muonstore {
namespace {

struct DTypeInfo {
  DType dtype;
  int64_t size_bytes;
  std::string_view name;
  std::string_view torch_name;
  std::string_view torch_alias;  // Empty: torch has none.
};

// In the order of the enum, so that a dtype is its own index.
constexpr std::array kInfos = {
    DTypeInfo{DType::kF64, 8, "f64", "float64", "double"},
    DTypeInfo{DType::kF32, 4, "f32", "float32", "float"},
    DTypeInfo{DType::kF16, 2, "f16", "float16", "half"},
    DTypeInfo{DType::kBF16, 2, "bf16", "bfloat16", ""},
    DTypeInfo{DType::kF8E4M3FN, 1, "f8_e4m3fn", "float8_e4m3fn", ""},
    DTypeInfo{DType::kF8E4M3FNUZ, 1, "f8_e4m3fnuz", "float8_e4m3fnuz", ""},
    DTypeInfo{DType::kF8E5M2, 1, "f8_e5m2", "float8_e5m2", ""},
    DTypeInfo{DType::kF8E5M2FNUZ, 1, "f8_e5m2fnuz", "float8_e5m2fnuz", ""},
    DTypeInfo{DType::kF8E8M0FNU, 1, "f8_e8m0fnu", "float8_e8m0fnu", ""},
    DTypeInfo{DType::kF4E2M1FNx2, 1, "f4_e2m1fn_x2", "float4_e2m1fn_x2", ""},
    DTypeInfo{DType::kI64, 8, "i64", "int64", "long"},
    DTypeInfo{DType::kI32, 4, "i32", "int32", "int"},
    DTypeInfo{DType::kI16, 2, "i16", "int16", "short"},
    DTypeInfo{DType::kI8, 1, "i8", "int8", ""},
    DTypeInfo{DType::kU64, 8, "u64", "uint64", ""},
    DTypeInfo{DType::kU32, 4, "u32", "uint32", ""},
    DTypeInfo{DType::kU16, 2, "u16", "uint16", ""},
    DTypeInfo{DType::kU8, 1, "u8", "uint8", ""},
    DTypeInfo{DType::kBool, 1, "bool", "bool", ""},
    DTypeInfo{DType::kC128, 16, "c128", "complex128", "cdouble"},
    DTypeInfo{DType::kC64, 8, "c64", "complex64", "cfloat"},
    DTypeInfo{DType::kC32, 4, "c32", "complex32", "chalf"},
};

constexpr bool IsInEnumOrder() {
  for (size_t i = 0; i < kInfos.size(); ++i) {
    if (static_cast<size_t>(kInfos[i].dtype) != i) {
      return false;
    }
  }
  return true;
}
static_assert(IsInEnumOrder());

const DTypeInfo& Info(DType dtype) {
  return kInfos[static_cast<size_t>(dtype)];
}

}  // namespace

int64_t SizeBytes(DType dtype) { return Info(dtype).size_bytes; }

std::string_view DTypeName(DType dtype) { return Info(dtype).name; }

std::string_view TorchDTypeName(DType dtype) { return Info(dtype).torch_name; }

std::optional<DType> ParseDType(std::string_view name) {
  constexpr std::string_view kTorchPrefix = "torch.";
  const bool torch_only = name.starts_with(kTorchPrefix);
  if (torch_only) {
    name.remove_prefix(kTorchPrefix.size());
  }
  if (name.empty()) {
    return std::nullopt;
  }
  for (const DTypeInfo& info : kInfos) {
    const bool is_short_name = !torch_only && name == info.name;
    if (is_short_name || name == info.torch_name || name == info.torch_alias) {
      return info.dtype;
    }
  }
  return std::nullopt;
}

bool IsFloatingPoint(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3FN:
    case DType::kF8E4M3FNUZ:
    case DType::kF8E5M2:
    case DType::kF8E5M2FNUZ:
    case DType::kF8E8M0FNU:
      return true;
    default:
      return false;
  }
}

bool IsComplex(DType dtype) {
  return dtype == DType::kC128 || dtype == DType::kC64 || dtype == DType::kC32;
}

}  // namespace muonstore
