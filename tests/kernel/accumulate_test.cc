#include "src/kernel/accumulate.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/kernel/pass_data.h"

namespace muonstore {
namespace {

constexpr size_t kAccumulateCount = 200;

std::vector<std::byte> Packed(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() *
                               static_cast<size_t>(SizeBytes(dtype)));
  ConvertFromF32(values, dtype, bytes);
  return bytes;
}

std::vector<float> Widened(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() /
                            static_cast<size_t>(SizeBytes(dtype)));
  ConvertToF32(dtype, bytes, values);
  return values;
}

class Accumulate : public testing::TestWithParam<DType> {};

TEST_P(Accumulate, SetsThenAddsWithOneRounding) {
  const std::vector<std::byte> first =
      Packed(GetParam(), NormalFloats(kAccumulateCount, 1));
  const std::vector<std::byte> second =
      Packed(GetParam(), NormalFloats(kAccumulateCount, 2, 100.0F));
  std::vector<float> accumulator(kAccumulateCount, std::nanf(""));
  AccumulateGradient(GetParam(), first, AccumulateMode::kSet, accumulator);
  EXPECT_EQ(accumulator, Widened(GetParam(), first));
  AccumulateGradient(GetParam(), second, AccumulateMode::kAdd, accumulator);
  for (size_t i = 0; i < kAccumulateCount; ++i) {
    const double exact = static_cast<double>(Widened(GetParam(), first)[i]) +
                         static_cast<double>(Widened(GetParam(), second)[i]);
    ASSERT_EQ(accumulator[i], static_cast<float>(exact));
  }
}

TEST_P(Accumulate, BitsDoNotDependOnCutOrAlignment) {
  const auto size = static_cast<size_t>(SizeBytes(GetParam()));
  const std::vector<std::byte> chunk =
      Packed(GetParam(), NormalFloats(kAccumulateCount, 3));
  const std::vector<float> start = NormalFloats(kAccumulateCount, 4);
  std::vector<float> whole = start;
  AccumulateGradient(GetParam(), chunk, AccumulateMode::kAdd, whole);
  for (const auto& [begin, count] : ManyCuts(kAccumulateCount)) {
    // One byte further on: no alignment at all.
    std::vector<std::byte> moved(count * size + 1);
    std::memcpy(moved.data() + 1, chunk.data() + begin * size, count * size);
    std::vector<float> part = start;
    AccumulateGradient(GetParam(), std::span(moved).subspan(1),
                       AccumulateMode::kAdd,
                       std::span(part).subspan(begin, count));
    ASSERT_TRUE(SameBits(std::span(part).subspan(begin, count),
                         std::span(whole).subspan(begin, count)));
    ASSERT_TRUE(SameBits(std::span(part).subspan(begin + count),
                         std::span(start).subspan(begin + count)));
  }
}

TEST_P(Accumulate, KeepsWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<std::byte> chunk =
      Packed(GetParam(), {infinity, -infinity, std::nanf(""), 1.0F});
  std::vector<float> accumulator(4, 1.0F);
  AccumulateGradient(GetParam(), chunk, AccumulateMode::kAdd, accumulator);
  EXPECT_EQ(accumulator[0], infinity);
  EXPECT_EQ(accumulator[1], -infinity);
  EXPECT_TRUE(std::isnan(accumulator[2]));
  EXPECT_EQ(accumulator[3], 2.0F);
}

TEST_P(Accumulate, WrongSizesAreRefused) {
  std::vector<float> accumulator(4);
  const auto size = static_cast<size_t>(SizeBytes(GetParam()));
  for (const size_t num_bytes :
       {size_t{0}, 4 * size - 1, 4 * size + 1, 5 * size}) {
    const std::vector<std::byte> chunk(num_bytes);
    for (const auto mode : {AccumulateMode::kSet, AccumulateMode::kAdd}) {
      EXPECT_THROW(AccumulateGradient(GetParam(), chunk, mode, accumulator),
                   Error);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, Accumulate,
                         testing::Values(DType::kF32, DType::kBF16,
                                         DType::kF16));

TEST(AccumulateDType, OthersAreUnsupported) {
  std::vector<float> accumulator(1);
  const std::vector<std::byte> chunk(8);
  for (const DType dtype : {DType::kF64, DType::kI32, DType::kF8E4M3FN}) {
    try {
      AccumulateGradient(dtype, chunk, AccumulateMode::kSet, accumulator);
      ADD_FAILURE() << DTypeName(dtype);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    }
  }
}

}  // namespace
}  // namespace muonstore
