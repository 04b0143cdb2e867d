#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "muonstore/torch.h"

namespace muonstore {
namespace {

// Every dtype of ours is LibTorch's of the same name and size.
TEST(TorchDType, NamesAndSizesAgree) {
  int num_dtypes = 0;
  for (int i = 0; i <= static_cast<int>(DType::kC32); ++i, ++num_dtypes) {
    const auto dtype = static_cast<DType>(i);
    const at::ScalarType type = ScalarTypeOf(dtype);
    EXPECT_EQ(DTypeOf(type), dtype);
    EXPECT_EQ(static_cast<int64_t>(c10::elementSize(type)), SizeBytes(dtype))
        << DTypeName(dtype);
  }
  EXPECT_EQ(num_dtypes, 22);
}

TEST(TorchDType, KnownPairs) {
  EXPECT_EQ(ScalarTypeOf(DType::kBF16), at::kBFloat16);
  EXPECT_EQ(ScalarTypeOf(DType::kF16), at::kHalf);
  EXPECT_EQ(ScalarTypeOf(DType::kF32), at::kFloat);
  EXPECT_EQ(ScalarTypeOf(DType::kU8), at::kByte);
  EXPECT_EQ(ScalarTypeOf(DType::kI8), at::kChar);
}

TEST(TorchDType, QuantizedTensorsHaveNoPlaceInAStore) {
  try {
    DTypeOf(at::kQInt8);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(error.message().find("QInt8"), std::string::npos);
  }
}

TEST(TorchShape, ScalarVectorAndEmptyMatrix) {
  EXPECT_EQ(ShapeOf(at::empty({})).ToString(), "[]");
  EXPECT_EQ(ShapeOf(at::empty({7})).ToString(), "[7]");
  EXPECT_EQ(ShapeOf(at::empty({0, 3})).ToString(), "[0, 3]");
}

}  // namespace
}  // namespace muonstore
