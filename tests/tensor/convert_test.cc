#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/dtype.h"
#include "muonstore/error.h"
#include "tests/oracle/float_oracle.h"

namespace muonstore {
namespace {

using ::testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
std::span<const std::byte> BytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

template <typename T>
std::vector<float> ToF32(DType dtype, const std::vector<T>& stored) {
  std::vector<float> out(stored.size());
  ConvertToF32(dtype, BytesOf(stored), out);
  return out;
}

template <typename T>
std::vector<double> ToF64(DType dtype, const std::vector<T>& stored) {
  std::vector<double> out(stored.size());
  ConvertToF64(dtype, BytesOf(stored), out);
  return out;
}

std::vector<uint16_t> Round16(DType dtype, const std::vector<float>& values) {
  std::vector<uint16_t> out(values.size());
  ConvertFromF32(values, dtype, std::as_writable_bytes(std::span(out)));
  return out;
}

// Equal bits, or both NaN. The oracle works in double, which is exact.
void ExpectSame(double found, double expected, size_t pattern) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(found)) << pattern;
  } else {
    EXPECT_EQ(std::bit_cast<uint64_t>(found), std::bit_cast<uint64_t>(expected))
        << pattern << ": " << found << " is not " << expected;
  }
}

template <typename T>
void ExpectAllPatterns(DType dtype, const oracle::Format& format) {
  std::vector<T> patterns(size_t{std::numeric_limits<T>::max()} + 1);
  std::iota(patterns.begin(), patterns.end(), T{0});
  const std::vector<float> f32 = ToF32(dtype, patterns);
  const std::vector<double> f64 = ToF64(dtype, patterns);
  for (size_t i = 0; i < patterns.size(); ++i) {
    const double expected = oracle::Decode(format, static_cast<uint32_t>(i));
    ExpectSame(double{f32[i]}, expected, i);
    ExpectSame(f64[i], expected, i);
  }
}

TEST(WidenTest, EveryPatternOfTheNarrowFloats) {
  ExpectAllPatterns<uint16_t>(DType::kF16, oracle::kHalf);
  ExpectAllPatterns<uint16_t>(DType::kBF16, oracle::kBrain);
  ExpectAllPatterns<uint8_t>(DType::kF8E4M3FN, oracle::kE4M3FN);
  ExpectAllPatterns<uint8_t>(DType::kF8E4M3FNUZ, oracle::kE4M3FNUZ);
  ExpectAllPatterns<uint8_t>(DType::kF8E5M2, oracle::kE5M2);
  ExpectAllPatterns<uint8_t>(DType::kF8E5M2FNUZ, oracle::kE5M2FNUZ);
}

TEST(WidenTest, KnownValuesOfTheNarrowFloats) {
  EXPECT_THAT(ToF32<uint8_t>(DType::kF8E4M3FN, {0x7E, 0x01, 0x38, 0xFE}),
              ElementsAre(448.0F, 0x1p-9F, 1.0F, -448.0F));
  EXPECT_THAT(ToF32<uint8_t>(DType::kF8E4M3FNUZ, {0x7F, 0x01, 0x40}),
              ElementsAre(240.0F, 0x1p-10F, 1.0F));
  EXPECT_THAT(ToF32<uint8_t>(DType::kF8E5M2, {0x7B, 0x01, 0x7C, 0xFC}),
              ElementsAre(57344.0F, 0x1p-16F, kInfinity, -kInfinity));
  EXPECT_THAT(ToF32<uint8_t>(DType::kF8E5M2FNUZ, {0x7F, 0x01, 0x40}),
              ElementsAre(57344.0F, 0x1p-17F, 1.0F));
  EXPECT_THAT(ToF32<uint16_t>(DType::kF16, {0x7BFF, 0x0001, 0x0400, 0xFC00}),
              ElementsAre(65504.0F, 0x1p-24F, 0x1p-14F, -kInfinity));
}

TEST(WidenTest, E8M0IsAPowerOfTwo) {
  std::vector<uint8_t> patterns(256);
  std::iota(patterns.begin(), patterns.end(), uint8_t{0});
  const std::vector<float> found = ToF32(DType::kF8E8M0FNU, patterns);
  for (int i = 0; i < 255; ++i) {
    ExpectSame(double{found[static_cast<size_t>(i)]}, std::ldexp(1.0, i - 127),
               static_cast<size_t>(i));
  }
  EXPECT_TRUE(std::isnan(found[255]));
}

TEST(WidenTest, F64RoundsToNearestEvenFloat) {
  const std::vector<double> stored = {0.1,   1.0 + 0x1p-24, 1.0 + 0x1.8p-23,
                                      1e300, -1e-300,       0x1p-149};
  EXPECT_THAT(
      ToF32(DType::kF64, stored),
      ElementsAre(0.1F, 1.0F, 1.0F + 0x1p-22F, kInfinity, -0.0F, 0x1p-149F));
  EXPECT_EQ(ToF64(DType::kF64, stored), stored);
}

TEST(WidenTest, F32KeepsEveryBit) {
  const std::vector<uint32_t> stored = {0x00000001, 0x80000000, 0x7F800000,
                                        0x3DCCCCCD, 0x7FC12345, 0xFF7FFFFF};
  const std::vector<float> found = ToF32(DType::kF32, stored);
  for (size_t i = 0; i < stored.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(found[i]), stored[i]);
  }
}

TEST(WidenTest, Integers) {
  EXPECT_THAT(ToF64<int64_t>(DType::kI64, {-5, int64_t{1} << 53, INT64_MIN}),
              ElementsAre(-5.0, 0x1p53, -0x1p63));
  EXPECT_THAT(ToF32<int64_t>(DType::kI64, {(1 << 24) + 1, (1 << 24) + 3}),
              ElementsAre(0x1p24F, 0x1p24F + 4.0F));
  EXPECT_THAT(ToF64<int32_t>(DType::kI32, {INT32_MIN, 77}),
              ElementsAre(-0x1p31, 77.0));
  EXPECT_THAT(ToF32<int16_t>(DType::kI16, {-32768, 7}),
              ElementsAre(-32768.0F, 7.0F));
  EXPECT_THAT(ToF32<int8_t>(DType::kI8, {-128, 127}),
              ElementsAre(-128.0F, 127.0F));
  EXPECT_THAT(ToF64<uint64_t>(DType::kU64, {UINT64_MAX, 3}),
              ElementsAre(0x1p64, 3.0));
  EXPECT_THAT(ToF64<uint32_t>(DType::kU32, {UINT32_MAX}),
              ElementsAre(4294967295.0));
  EXPECT_THAT(ToF32<uint16_t>(DType::kU16, {65535}), ElementsAre(65535.0F));
  EXPECT_THAT(ToF32<uint8_t>(DType::kU8, {255, 1}), ElementsAre(255.0F, 1.0F));
  EXPECT_THAT(ToF32<uint8_t>(DType::kBool, {0, 1, 2}),
              ElementsAre(0.0F, 1.0F, 1.0F));
}

TEST(WidenTest, NeedsNoAlignment) {
  const std::vector<double> values = {1.5, -2.25, 1e-40};
  std::vector<std::byte> bytes(values.size() * sizeof(double) + 1);
  std::memcpy(bytes.data() + 1, values.data(), bytes.size() - 1);
  std::vector<double> found(values.size());
  ConvertToF64(DType::kF64, std::span<const std::byte>(bytes).subspan(1),
               found);
  EXPECT_EQ(found, values);
}

TEST(WidenTest, EmptySpansAreFine) {
  ConvertToF32(DType::kBF16, {}, {});
  ConvertToF64(DType::kI64, {}, {});
  ConvertFromF32({}, DType::kF16, {});
}

TEST(WidenTest, RefusesSpansThatDoNotFit) {
  std::vector<float> out(3);
  for (const size_t size : {0U, 5U, 7U, 8U}) {
    const std::vector<std::byte> in(size);
    try {
      ConvertToF32(DType::kBF16, in, out);
      ADD_FAILURE() << size;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(error.place().expected, "3 * 2 bytes");
    }
  }
}

TEST(WidenTest, RefusesDtypesThatAreNotReal) {
  for (const DType dtype :
       {DType::kC128, DType::kC64, DType::kC32, DType::kF4E2M1FNx2}) {
    const std::vector<std::byte> in(static_cast<size_t>(SizeBytes(dtype)));
    std::vector<double> out(1);
    try {
      ConvertToF64(dtype, in, out);
      ADD_FAILURE() << DTypeName(dtype);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    }
  }
}

// Every finite pattern, the points halfway to the next one and their float
// neighbours, with both signs.
std::vector<float> HardCases(const oracle::Format& format) {
  std::vector<float> cases;
  const auto add = [&cases](float value) {
    for (const float near : {value, std::nextafterf(value, 0.0F),
                             std::nextafterf(value, kInfinity)}) {
      cases.push_back(near);
      cases.push_back(-near);
    }
  };
  const uint32_t infinity = ((1U << format.exponent_bits) - 1U)
                            << format.mantissa_bits;
  for (uint32_t bits = 0; bits < infinity; ++bits) {
    const double value = oracle::Decode(format, bits);
    const double next = bits + 1 == infinity
                            ? 2.0 * value - oracle::Decode(format, bits - 1)
                            : oracle::Decode(format, bits + 1);
    add(static_cast<float>(value));
    add(static_cast<float>(value + (next - value) / 2.0));
  }
  return cases;
}

void ExpectRounded(DType dtype, const oracle::Format& format,
                   const std::vector<float>& values) {
  const oracle::Rounder rounder(format);
  const std::vector<uint16_t> found = Round16(dtype, values);
  size_t wrong = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t expected = rounder.Round(double{values[i]});
    if (found[i] != expected && ++wrong <= 5) {
      ADD_FAILURE() << values[i] << " gives " << found[i] << ", not "
                    << expected;
    }
  }
  EXPECT_EQ(wrong, 0U);
}

TEST(RoundTest, HalfwayPointsAndTheirNeighbours) {
  ExpectRounded(DType::kF16, oracle::kHalf, HardCases(oracle::kHalf));
  ExpectRounded(DType::kBF16, oracle::kBrain, HardCases(oracle::kBrain));
}

TEST(RoundTest, RandomBitPatterns) {
  std::mt19937 random(20240817);
  std::vector<float> values;
  while (values.size() < 300000) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(value)) {
      values.push_back(value);
    }
  }
  ExpectRounded(DType::kF16, oracle::kHalf, values);
  ExpectRounded(DType::kBF16, oracle::kBrain, values);
}

TEST(RoundTest, OverflowGivesInfinity) {
  EXPECT_THAT(Round16(DType::kF16, {65519.996F, 65520.0F, -65520.0F, 1e30F,
                                    kInfinity, -kInfinity}),
              ElementsAre(0x7BFF, 0x7C00, 0xFC00, 0x7C00, 0x7C00, 0xFC00));
  EXPECT_THAT(Round16(DType::kBF16, {3.4028235e38F, kInfinity, -kInfinity}),
              ElementsAre(0x7F80, 0x7F80, 0xFF80));
}

TEST(RoundTest, EveryNanStaysAQuietNan) {
  std::vector<float> nans = {kNan, -kNan};
  for (const uint32_t bits : {0x7F800001U, 0xFF800001U, 0x7FBFFFFFU,
                              0x7FFFFFFFU, 0x7F802000U, 0xFFFFFFFFU}) {
    nans.push_back(std::bit_cast<float>(bits));
  }
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const uint16_t quiet = dtype == DType::kF16 ? 0x7E00 : 0x7FC0;
    const std::vector<uint16_t> found = Round16(dtype, nans);
    for (size_t i = 0; i < nans.size(); ++i) {
      EXPECT_EQ(found[i] & quiet, quiet) << DTypeName(dtype) << " " << i;
      EXPECT_EQ(found[i] >> 15, std::signbit(nans[i]) ? 1 : 0);
    }
  }
}

TEST(RoundTest, NarrowValuesSurviveARoundTrip) {
  std::vector<uint16_t> patterns(65536);
  std::iota(patterns.begin(), patterns.end(), uint16_t{0});
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const std::vector<float> wide = ToF32(dtype, patterns);
    const std::vector<uint16_t> back = Round16(dtype, wide);
    for (size_t i = 0; i < patterns.size(); ++i) {
      if (!std::isnan(wide[i])) {
        EXPECT_EQ(back[i], patterns[i]);
      }
    }
  }
}

TEST(RoundTest, WiderFloatsAreExact) {
  const std::vector<float> values = {0.1F, -0.0F, 0x1p-149F, kInfinity,
                                     3.4028235e38F};
  std::vector<double> f64(values.size());
  ConvertFromF32(values, DType::kF64, std::as_writable_bytes(std::span(f64)));
  std::vector<float> f32(values.size());
  ConvertFromF32(values, DType::kF32, std::as_writable_bytes(std::span(f32)));
  for (size_t i = 0; i < values.size(); ++i) {
    ExpectSame(f64[i], double{values[i]}, i);
    ExpectSame(double{f32[i]}, double{values[i]}, i);
  }
}

TEST(RoundTest, RefusesOtherDtypesAndSizes) {
  const std::vector<float> values = {1.0F, 2.0F};
  std::vector<std::byte> out(2);
  EXPECT_THROW(ConvertFromF32(values, DType::kF8E4M3FN, out), Error);
  EXPECT_THROW(ConvertFromF32(values, DType::kI8, out), Error);
  EXPECT_THROW(ConvertFromF32(values, DType::kBF16, out), Error);
}

}  // namespace
}  // namespace muonstore
