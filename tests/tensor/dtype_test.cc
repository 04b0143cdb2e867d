#include "muonstore/dtype.h"

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace muonstore {
namespace {

struct Row {
  DType dtype;
  int64_t size_bytes;
  std::string name;
  std::vector<std::string> torch_names;
  bool is_float = false;
  bool is_complex = false;
};

std::vector<Row> Rows() {
  return {
      {DType::kF64, 8, "f64", {"float64", "double"}, true},
      {DType::kF32, 4, "f32", {"float32", "float"}, true},
      {DType::kF16, 2, "f16", {"float16", "half"}, true},
      {DType::kBF16, 2, "bf16", {"bfloat16"}, true},
      {DType::kF8E4M3FN, 1, "f8_e4m3fn", {"float8_e4m3fn"}, true},
      {DType::kF8E4M3FNUZ, 1, "f8_e4m3fnuz", {"float8_e4m3fnuz"}, true},
      {DType::kF8E5M2, 1, "f8_e5m2", {"float8_e5m2"}, true},
      {DType::kF8E5M2FNUZ, 1, "f8_e5m2fnuz", {"float8_e5m2fnuz"}, true},
      {DType::kF8E8M0FNU, 1, "f8_e8m0fnu", {"float8_e8m0fnu"}, true},
      {DType::kF4E2M1FNx2, 1, "f4_e2m1fn_x2", {"float4_e2m1fn_x2"}},
      {DType::kI64, 8, "i64", {"int64", "long"}},
      {DType::kI32, 4, "i32", {"int32", "int"}},
      {DType::kI16, 2, "i16", {"int16", "short"}},
      {DType::kI8, 1, "i8", {"int8"}},
      {DType::kU64, 8, "u64", {"uint64"}},
      {DType::kU32, 4, "u32", {"uint32"}},
      {DType::kU16, 2, "u16", {"uint16"}},
      {DType::kU8, 1, "u8", {"uint8"}},
      {DType::kBool, 1, "bool", {"bool"}},
      {DType::kC128, 16, "c128", {"complex128", "cdouble"}, false, true},
      {DType::kC64, 8, "c64", {"complex64", "cfloat"}, false, true},
      {DType::kC32, 4, "c32", {"complex32", "chalf"}, false, true},
  };
}

TEST(DTypeTest, HasSizeAndUniqueName) {
  std::set<std::string_view> names;
  for (const Row& row : Rows()) {
    names.insert(DTypeName(row.dtype));
    EXPECT_EQ(DTypeName(row.dtype), row.name);
    EXPECT_EQ(SizeBytes(row.dtype), row.size_bytes) << row.name;
  }
  EXPECT_EQ(names.size(), 22U);
}

TEST(DTypeTest, IsRealComplexOrNeither) {
  for (const Row& row : Rows()) {
    EXPECT_EQ(IsFloatingPoint(row.dtype), row.is_float) << row.name;
    EXPECT_EQ(IsComplex(row.dtype), row.is_complex) << row.name;
  }
}

TEST(DTypeTest, ParsesShortNamesAndTorchNames) {
  for (const Row& row : Rows()) {
    EXPECT_EQ(ParseDType(row.name), row.dtype) << row.name;
    for (const std::string& name : row.torch_names) {
      EXPECT_EQ(ParseDType(name), row.dtype) << name;
      EXPECT_EQ(ParseDType("torch." + name), row.dtype) << name;
    }
  }
}

TEST(DTypeTest, RefusesOtherNames) {
  for (const char* name : {"", "torch.", "torch.f32", "F32", "float33", "torch",
                           "f32 ", "torch.torch.half", "int8_t", "f8"}) {
    EXPECT_EQ(ParseDType(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace muonstore
