#include "src/inspect/tensor_diff.h"

#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testutil/memory_checkpoint.h"

namespace muonstore {
namespace {

using testing::HasSubstr;
using testutil::MemoryCheckpoint;
using testutil::UniqueValues;

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Typed {
  std::vector<float> values;
  DType dtype = DType::kF32;
};

TensorDiff Diff(const Typed& a, const Typed& b, const Tolerance& tolerance = {},
                int32_t pieces = 3) {
  MemoryCheckpoint left;
  MemoryCheckpoint right;
  left.Add({.parameter = "w",
            .shape = {static_cast<int64_t>(a.values.size())},
            .dtype = a.dtype},
           a.values);
  right.Add({.parameter = "w",
             .shape = {static_cast<int64_t>(b.values.size())},
             .dtype = b.dtype,
             .num_pieces = pieces},
            b.values);
  return DiffTensors({left, 0}, {right, 0}, tolerance);
}

TEST(DiffTensors, EqualHoweverItIsCut) {
  for (const int32_t pieces : {1, 2, 3, 10}) {
    const auto diff = Diff({UniqueValues(9)}, {UniqueValues(9)}, {}, pieces);
    EXPECT_EQ(diff.verdict, TensorVerdict::kEqual);
    EXPECT_EQ(diff.num_different, 0);
    EXPECT_FALSE(diff.first_element.has_value());
  }
}

TEST(DiffTensors, EveryDisplacedElementShows) {
  for (size_t i = 0; i + 1 < 7; ++i) {
    std::vector<float> swapped = UniqueValues(7);
    std::swap(swapped[i], swapped[i + 1]);
    const auto diff = Diff({UniqueValues(7)}, {swapped});
    EXPECT_EQ(diff.verdict, TensorVerdict::kDifferent);
    EXPECT_EQ(diff.num_different, 2);
    EXPECT_EQ(diff.first_element, static_cast<int64_t>(i));
    EXPECT_EQ(diff.first_a, 0.25 * static_cast<double>(i + 1));
    EXPECT_EQ(diff.first_b, 0.25 * static_cast<double>(i + 2));
    EXPECT_EQ(diff.max_abs, 0.25);
  }
}

TEST(DiffTensors, LargestDifferencesAgreeWithNaiveLoop) {
  const std::vector<float> a = {1, -2, 0, 100};
  const std::vector<float> b = {1.5, -2, 0.25, 101};
  double max_abs = 0;
  double max_rel = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]);
    const auto y = static_cast<double>(b[i]);
    if (x == y) continue;
    max_abs = std::max(max_abs, std::abs(x - y));
    max_rel =
        std::max(max_rel, std::abs(x - y) / std::max(std::abs(x), std::abs(y)));
  }
  const auto diff = Diff({a}, {b});
  EXPECT_EQ(diff.num_different, 3);
  EXPECT_EQ(diff.max_abs, max_abs);
  EXPECT_EQ(diff.max_rel, max_rel);
}

TEST(DiffTensors, NanEqualsNanOfTheSameBits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float other_nan = std::bit_cast<float>(0x7FC00001U);
  EXPECT_EQ(Diff({{1, nan}}, {{1, nan}}).verdict, TensorVerdict::kEqual);
  const auto diff = Diff({{1, nan}}, {{1, other_nan}});
  EXPECT_EQ(diff.verdict, TensorVerdict::kDifferent);
  EXPECT_EQ(diff.first_element, 1);
  EXPECT_EQ(Diff({{1, nan}}, {{1, other_nan}}, {.rtol = 1e-9}).verdict,
            TensorVerdict::kClose);
  EXPECT_EQ(Diff({{1, nan}}, {{1, 1}}, {.rtol = 1, .atol = 9}).verdict,
            TensorVerdict::kDifferent);
}

TEST(DiffTensors, AChangedSignOfZeroIsADifferenceOfNothing) {
  const auto diff = Diff({{0.0F}}, {{-0.0F}});
  EXPECT_EQ(diff.verdict, TensorVerdict::kDifferent);
  EXPECT_EQ(diff.max_abs, 0);
  EXPECT_EQ(diff.max_rel, 0);
  EXPECT_EQ(Diff({{0.0F}}, {{-0.0F}}, {.atol = 1e-30}).verdict,
            TensorVerdict::kClose);
}

TEST(DiffTensors, InfinitiesDifferInfinitely) {
  for (const auto& [x, y] :
       {std::pair{kInf, 1.0F}, std::pair{1.0F, kInf}, std::pair{kInf, -kInf}}) {
    const auto diff = Diff({{x}}, {{y}}, {.rtol = 1, .atol = 1});
    EXPECT_EQ(diff.verdict, TensorVerdict::kDifferent);
    EXPECT_TRUE(std::isinf(*diff.max_abs));
    EXPECT_TRUE(std::isinf(*diff.max_rel));
  }
  EXPECT_EQ(Diff({{kInf}}, {{kInf}}).verdict, TensorVerdict::kEqual);
}

TEST(DiffTensors, ToleranceIsOfTheSecond) {
  const Tolerance tolerance{.rtol = 0.1, .atol = 0.5};
  // 0.5 + 0.1 * 10 = 1.5.
  EXPECT_EQ(Diff({{11.5}}, {{10}}, tolerance).verdict, TensorVerdict::kClose);
  EXPECT_EQ(Diff({{11.75}}, {{10}}, tolerance).verdict,
            TensorVerdict::kDifferent);
  const auto diff = Diff({{11.5, 12, 10}}, {{10, 10, 10}}, tolerance);
  EXPECT_EQ(diff.num_different, 1);
  EXPECT_EQ(diff.first_element, 1);
}

TEST(DiffTensors, EqualAfterWidening) {
  const std::vector<float> exact = {1, 2, -0.5, 0, kInf};
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF64}) {
    const auto diff = Diff({exact}, {exact, dtype});
    EXPECT_EQ(diff.verdict, TensorVerdict::kEqualUpToDType);
    EXPECT_THAT(diff.note, HasSubstr("after widening"));
  }
  EXPECT_EQ(Diff({exact, DType::kF16}, {exact, DType::kBF16}).verdict,
            TensorVerdict::kEqualUpToDType);
}

TEST(DiffTensors, EqualAfterRounding) {
  const std::vector<float> fine = {1.001F, 2.003F, std::nanf(""), -7.7F};
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const bool swapped : {false, true}) {
      const auto diff =
          swapped ? Diff({fine, dtype}, {fine}) : Diff({fine}, {fine, dtype});
      EXPECT_EQ(diff.verdict, TensorVerdict::kEqualUpToDType);
      EXPECT_EQ(diff.note,
                "equal after rounding f32 to " + std::string(DTypeName(dtype)));
    }
  }
}

TEST(DiffTensors, DoublesRoundToFloats) {
  MemoryCheckpoint left;
  MemoryCheckpoint right;
  const std::vector<double> fine = {0.1, 1.0 / 3};
  left.Add({.parameter = "w", .shape = {2}, .dtype = DType::kF64},
           std::as_bytes(std::span(fine)));
  right.Add({.parameter = "w", .shape = {2}},
            std::vector<float>{0.1F, 1.0F / 3});
  EXPECT_EQ(DiffTensors({left, 0}, {right, 0}, {}).note,
            "equal after rounding f64 to f32");
}

TEST(DiffTensors, RoundingDoesNotHideADifference) {
  const auto diff = Diff({{1.001F, 2.5F}}, {{1.001F, 2.75F}, DType::kBF16});
  EXPECT_EQ(diff.verdict, TensorVerdict::kDifferent);
  EXPECT_EQ(diff.max_abs, 0.25);
  // Neither of f16 and bf16 holds the other.
  EXPECT_EQ(Diff({{1.001F}, DType::kF16}, {{1.001F}, DType::kBF16}).verdict,
            TensorVerdict::kDifferent);
}

TEST(DiffTensors, ShapesDifferAlsoWhenTheCountsAgree) {
  MemoryCheckpoint left;
  MemoryCheckpoint right;
  left.Add({.parameter = "w", .shape = {4, 6}}, UniqueValues(24));
  right.Add({.parameter = "w", .shape = {6, 4}}, UniqueValues(24));
  const auto diff = DiffTensors({left, 0}, {right, 0}, {});
  EXPECT_EQ(diff.verdict, TensorVerdict::kShapeDiffers);
  EXPECT_EQ(diff.shape_a->ToString(), "[4, 6]");
  EXPECT_EQ(diff.shape_b->ToString(), "[6, 4]");
  EXPECT_TRUE(IsDifference(diff.verdict));
}

// Bytes of one tensor of 64-bit numbers.
template <typename T>
void AddNumbers(MemoryCheckpoint& checkpoint, DType dtype,
                const std::vector<T>& values) {
  checkpoint.Add({.parameter = "w",
                  .shape = {static_cast<int64_t>(values.size())},
                  .dtype = dtype},
                 std::as_bytes(std::span(values)));
}

TEST(DiffTensors, IntegersAreNotRoundedToCompareThemWithDoubles) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kTwoTo53 = int64_t{1} << 53;
  struct Case {
    int64_t integer;
    double number;
    std::optional<double> difference;  // None: equal.
  };
  for (const Case& c : std::vector<Case>{{kTwoTo53, 0x1p53, {}},
                                         {kTwoTo53 + 1, 0x1p53, 1},
                                         {-kTwoTo53 - 1, -0x1p53, 1},
                                         {kTwoTo53 + 3, 0x1p53 + 4, 1},
                                         {kMax, 0x1p63, 1},
                                         {kMax - 511, 0x1p63 - 1024, 512},
                                         {kMin, -0x1p63, {}},
                                         {kMin + 1, -0x1p63, 1},
                                         {7, 7.5, 0.5},
                                         {-3, -3, {}}}) {
    MemoryCheckpoint integers;
    MemoryCheckpoint numbers;
    AddNumbers<int64_t>(integers, DType::kI64, {5, c.integer});
    AddNumbers<double>(numbers, DType::kF64, {5, c.number});
    for (const bool swapped : {false, true}) {
      const TensorRef a{swapped ? numbers : integers, 0};
      const TensorRef b{swapped ? integers : numbers, 0};
      const auto diff = DiffTensors(a, b, {});
      EXPECT_EQ(diff.verdict, c.difference ? TensorVerdict::kDifferent
                                           : TensorVerdict::kEqualUpToDType)
          << c.integer;
      EXPECT_EQ(diff.max_abs, c.difference) << c.integer;
      if (c.difference) {
        EXPECT_EQ(diff.first_element, 1);
        EXPECT_EQ(DiffTensors(a, b, {.atol = *c.difference}).verdict,
                  TensorVerdict::kClose);
        EXPECT_EQ(DiffTensors(a, b, {.atol = *c.difference * 0.75}).verdict,
                  TensorVerdict::kDifferent);
      }
    }
  }
}

TEST(DiffTensors, SignedAndUnsignedIntegersAreExact) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  const auto diff = [](uint64_t a, int64_t b) {
    MemoryCheckpoint left;
    MemoryCheckpoint right;
    AddNumbers<uint64_t>(left, DType::kU64, {a});
    AddNumbers<int64_t>(right, DType::kI64, {b});
    return DiffTensors({left, 0}, {right, 0}, {});
  };
  EXPECT_EQ(diff(kMax, -1).verdict, TensorVerdict::kDifferent);
  EXPECT_EQ(diff(kMax, -1).max_abs, 0x1p64);
  constexpr int64_t kLarge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(diff(static_cast<uint64_t>(kLarge), kLarge).verdict,
            TensorVerdict::kEqualUpToDType);
  const auto one_off = diff(static_cast<uint64_t>(kLarge) + 1, kLarge);
  EXPECT_EQ(one_off.verdict, TensorVerdict::kDifferent);
  EXPECT_EQ(one_off.max_abs, 1);
}

TEST(DiffTensors, TheDifferenceOfLargeIntegersIsTheirs) {
  MemoryCheckpoint left;
  MemoryCheckpoint right;
  AddNumbers<int64_t>(left, DType::kI64, {(int64_t{1} << 60) + 1});
  AddNumbers<int64_t>(right, DType::kI64, {(int64_t{1} << 60) + 4});
  EXPECT_EQ(DiffTensors({left, 0}, {right, 0}, {}).max_abs, 3);
}

TEST(DiffTensors, MissingElementsLeaveTheRestToCompare) {
  MemoryCheckpoint left;
  MemoryCheckpoint right;
  std::vector<float> other = UniqueValues(10);
  other[1] = -1;
  other[5] = -1;
  left.Add({.parameter = "w", .shape = {10}}, UniqueValues(10));
  right.Add({.parameter = "w", .shape = {10}}, other);
  left.mutable_tensor(0).missing = {{0, 3}};
  right.mutable_tensor(0).missing = {{2, 4}, {9, 10}};
  const auto diff = DiffTensors({left, 0}, {right, 0}, {});
  EXPECT_EQ(diff.verdict, TensorVerdict::kMissing);
  EXPECT_EQ(diff.num_different, 1);
  EXPECT_EQ(diff.first_element, 5);
  EXPECT_THAT(diff.note, HasSubstr("3 elements are missing in A, 3 in B"));
}

TEST(DiffTensors, ComplexNumbersCompareByBits) {
  const auto diff = [](const std::vector<float>& a,
                       const std::vector<float>& b) {
    MemoryCheckpoint left;
    MemoryCheckpoint right;
    left.Add({.parameter = "z", .shape = {2}, .dtype = DType::kC64},
             std::as_bytes(std::span(a)));
    right.Add({.parameter = "z", .shape = {2}, .dtype = DType::kC64},
              std::as_bytes(std::span(b)));
    return DiffTensors({left, 0}, {right, 0}, {});
  };
  EXPECT_EQ(diff({1, 2, 3, 4}, {1, 2, 3, 4}).verdict, TensorVerdict::kEqual);
  const auto different = diff({1, 2, 3, 4}, {1, 2, 3, 5});
  EXPECT_EQ(different.verdict, TensorVerdict::kDifferent);
  EXPECT_EQ(different.first_element, 1);
  EXPECT_FALSE(different.max_abs.has_value());
}

TEST(DiffTensors, DTypesThatCannotBeCompared) {
  MemoryCheckpoint left;
  MemoryCheckpoint right;
  left.Add({.parameter = "z", .shape = {1}, .dtype = DType::kC64},
           std::vector<std::byte>(8));
  right.Add({.parameter = "z", .shape = {1}}, std::vector<float>{0});
  EXPECT_EQ(DiffTensors({left, 0}, {right, 0}, {}).verdict,
            TensorVerdict::kDifferent);
}

TEST(DiffTensors, BlocksAreCountedOn) {
  // Beyond one block of 2^18 elements.
  const int64_t count = (int64_t{1} << 18) + 10;
  std::vector<float> a(static_cast<size_t>(count), 1.0F);
  std::vector<float> b = a;
  b.back() = 3;
  b[static_cast<size_t>(count) - 4] = 2;
  const auto diff = Diff({a}, {b});
  EXPECT_EQ(diff.num_different, 2);
  EXPECT_EQ(diff.first_element, count - 4);
  EXPECT_EQ(diff.max_abs, 2);
}

TEST(DiffTensors, EmptyAndScalarTensors) {
  EXPECT_EQ(Diff({{}}, {{}}).verdict, TensorVerdict::kEqual);
  MemoryCheckpoint left;
  MemoryCheckpoint right;
  left.Add({.parameter = "s", .shape = {}}, std::vector<float>{1});
  right.Add({.parameter = "s", .shape = {}}, std::vector<float>{2});
  EXPECT_EQ(DiffTensors({left, 0}, {right, 0}, {}).first_element, 0);
}

}  // namespace
}  // namespace muonstore
