#include "tools/ckpt_inspect/tensor_values.h"

#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "muonstore/error.h"

namespace muonstore::tools {
namespace {

template <typename T>
std::vector<std::byte> Bytes(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> Rounded(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() *
                               static_cast<size_t>(SizeBytes(dtype)));
  ConvertFromF32(values, dtype, bytes);
  return bytes;
}

TEST(TensorText, NestsLikeNumpy) {
  const auto data = Bytes<float>({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(TensorText(DType::kF32, {2, 3}, data), "[[1, 2, 3],\n [4, 5, 6]]");
  EXPECT_EQ(TensorText(DType::kF32, {6}, data), "[1, 2, 3, 4, 5, 6]");
  EXPECT_EQ(TensorText(DType::kF32, {1, 2, 3}, data),
            "[[[1, 2, 3],\n  [4, 5, 6]]]");
  EXPECT_EQ(TensorText(DType::kF32, {}, std::span(data).first(4)), "1");
  EXPECT_EQ(TensorText(DType::kF32, {0, 3}, {}), "[]");
}

TEST(TensorText, ShortensLargeTensorsToTheirEdges) {
  std::vector<float> values(2000);
  std::iota(values.begin(), values.end(), 0.0F);
  EXPECT_EQ(TensorText(DType::kF32, {2000}, Bytes(values)),
            "[0, 1, 2, ..., 1997, 1998, 1999]");
  EXPECT_EQ(TensorText(DType::kF32, {2, 1000}, Bytes(values)),
            "[[0, 1, 2, ..., 997, 998, 999],\n"
            " [1000, 1001, 1002, ..., 1997, 1998, 1999]]");
}

TEST(ValueText, EveryKindOfNumber) {
  EXPECT_EQ(ValueText(DType::kF32, Bytes<float>({0.1F})), "0.1");
  EXPECT_EQ(ValueText(DType::kF64, Bytes<double>({0.1})), "0.1");
  EXPECT_EQ(ValueText(DType::kBF16, Rounded({1.5F}, DType::kBF16)), "1.5");
  EXPECT_EQ(ValueText(DType::kF32,
                      Bytes<float>({-std::numeric_limits<float>::infinity()})),
            "-inf");
  EXPECT_EQ(ValueText(DType::kI64,
                      Bytes<int64_t>({std::numeric_limits<int64_t>::min()})),
            "-9223372036854775808");
  EXPECT_EQ(ValueText(DType::kU64,
                      Bytes<uint64_t>({std::numeric_limits<uint64_t>::max()})),
            "18446744073709551615");
  EXPECT_EQ(ValueText(DType::kI8, Bytes<int8_t>({-7})), "-7");
  EXPECT_EQ(ValueText(DType::kBool, Bytes<uint8_t>({1})), "true");
  EXPECT_EQ(ValueText(DType::kC64, Bytes<float>({1, -2})), "(1-2j)");
  EXPECT_EQ(ValueText(DType::kC128, Bytes<double>({-0.5, 2})), "(-0.5+2j)");
  EXPECT_EQ(ValueText(DType::kC32, Rounded({1, 2}, DType::kF16)), "(1+2j)");
}

TEST(TensorJson, NestedListsOfEveryValue) {
  EXPECT_EQ(
      TensorJson(DType::kF32, {2, 2}, Bytes<float>({1, 2, 3, 0.5})).dump(),
      "[[1.0,2.0],[3.0,0.5]]");
  EXPECT_EQ(TensorJson(DType::kI32, {2}, Bytes<int32_t>({-1, 7})).dump(),
            "[-1,7]");
  EXPECT_EQ(TensorJson(DType::kBool, {2}, Bytes<uint8_t>({0, 1})).dump(),
            "[false,true]");
  EXPECT_EQ(TensorJson(DType::kC64, {1}, Bytes<float>({1, 2})).dump(),
            "[[1.0,2.0]]");
  EXPECT_EQ(TensorJson(DType::kF32, {}, Bytes<float>({5})).dump(), "5.0");
  EXPECT_EQ(TensorJson(DType::kF32, {0, 2}, {}).dump(), "[]");
  EXPECT_EQ(TensorJson(DType::kF32, {2, 0}, {}).dump(), "[[],[]]");
  EXPECT_EQ(TensorJson(DType::kU64, {1},
                       Bytes<uint64_t>({std::numeric_limits<uint64_t>::max()}))
                .dump(),
            "[18446744073709551615]");
}

TEST(TensorJson, NonFiniteValuesAreText) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(TensorJson(DType::kF32, {2}, Bytes<float>({inf, -inf})).dump(),
            R"(["inf","-inf"])");
}

TEST(ValueText, PairsOfFourBitsHaveNone) {
  EXPECT_THROW(ValueText(DType::kF4E2M1FNx2, Bytes<uint8_t>({0})), Error);
}

}  // namespace
}  // namespace muonstore::tools
