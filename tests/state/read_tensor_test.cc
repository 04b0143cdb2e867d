// Reading tensors through fragments, on a checkpoint made of vectors.

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/checkpoint.h"
#include "muonstore/open.h"
#include "tests/testutil/memory_checkpoint.h"

namespace muonstore {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testutil::MemoryCheckpoint;
using testutil::UniqueValues;

// The error that `call` throws.
template <typename Call>
Error ErrorOf(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorCode::kInternal, "");
}

TEST(ReadTensorTest, EveryRangeOfAScatteredTensor) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int64_t rows = std::uniform_int_distribution<int64_t>(1, 9)(random);
    const int64_t cols = std::uniform_int_distribution<int64_t>(1, 9)(random);
    const int64_t size = rows * cols;
    MemoryCheckpoint checkpoint;
    const std::vector<float> values = UniqueValues(size);
    const size_t tensor = checkpoint.Add(
        {.parameter = "w",
         .shape = {rows, cols},
         .num_pieces = std::uniform_int_distribution<int32_t>(1, 12)(random)},
        values);
    std::uniform_int_distribution<int64_t> edge(0, size);
    const int64_t a = edge(random);
    const int64_t b = edge(random);
    const ElementRange range{std::min(a, b), std::max(a, b)};
    EXPECT_EQ(ReadTensorF32(checkpoint, tensor, range),
              std::vector<float>(values.begin() + range.begin,
                                 values.begin() + range.end));
  }
}

TEST(ReadTensorTest, StoredBytesAndWidenedValuesAgree) {
  MemoryCheckpoint checkpoint;
  const std::vector<float> values = {1.0F, -2.5F, 65280.0F, 0.0F};
  const size_t tensor = checkpoint.Add(
      {.parameter = "w", .shape = {4}, .dtype = DType::kBF16, .num_pieces = 3},
      values);
  EXPECT_EQ(ReadTensorF32(checkpoint, tensor, {0, 4}), values);
  EXPECT_THAT(ReadTensorF64(checkpoint, tensor, {1, 3}),
              ElementsAre(-2.5, 65280.0));
  std::vector<std::byte> bytes(2 * 4);
  ReadTensor(checkpoint, tensor, {0, 4}, bytes);
  EXPECT_EQ(bytes[0], std::byte{0x80});
  EXPECT_EQ(bytes[1], std::byte{0x3F});  // 1.0 is 0x3F80.
}

TEST(ReadTensorTest, ADerivedWeightIsTheRoundedMaster) {
  MemoryCheckpoint checkpoint;
  std::vector<float> masters = UniqueValues(1000, 0.7F);
  masters[3] = std::numeric_limits<float>::quiet_NaN();
  const size_t tensor = checkpoint.Add(
      {.parameter = "w", .kind = "weight", .shape = {10, 100}, .num_pieces = 7},
      masters);
  checkpoint.mutable_tensor(tensor).dtype = DType::kBF16;
  checkpoint.mutable_tensor(tensor).derived = true;
  std::vector<std::byte> weights(2 * 997);
  ReadTensor(checkpoint, tensor, {1, 998}, weights);
  std::vector<std::byte> expected(2 * 1000);
  ConvertFromF32(masters, DType::kBF16, expected);
  EXPECT_EQ(weights,
            std::vector<std::byte>(expected.begin() + 2, expected.end() - 4));
}

TEST(ReadTensorTest, MissingElementsAreAnErrorThatNamesThem) {
  MemoryCheckpoint checkpoint;
  const size_t tensor =
      checkpoint.Add({.parameter = "w", .shape = {10}}, UniqueValues(10));
  checkpoint.mutable_tensor(tensor).missing = {{7, 9}};
  EXPECT_EQ(ReadTensorF32(checkpoint, tensor, {0, 7}).size(), 7U);
  EXPECT_EQ(ReadTensorF32(checkpoint, tensor, {9, 10}).size(), 1U);
  const Error error = ErrorOf([&] {
    ReadTensorF32(checkpoint, tensor, {0, 8});
  });
  EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
  EXPECT_EQ(error.place().tensor, "w/momentum");
  EXPECT_THAT(error.what(), HasSubstr("7 to 8"));
}

TEST(ReadTensorTest, BadRangesAndSizesAreRefused) {
  MemoryCheckpoint checkpoint;
  const size_t tensor =
      checkpoint.Add({.parameter = "w", .shape = {10}}, UniqueValues(10));
  std::vector<std::byte> bytes(40);
  for (const ElementRange range :
       {ElementRange{-1, 2}, ElementRange{0, 11}, ElementRange{5, 4}}) {
    EXPECT_EQ(
        ErrorOf([&] { ReadTensor(checkpoint, tensor, range, bytes); }).code(),
        ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(ErrorOf([&] {
              ReadTensor(checkpoint, tensor, {0, 9}, bytes);
            }).code(),
            ErrorCode::kInvalidArgument);
}

TEST(ReadTensorTest, AReadErrorNamesTheTensor) {
  MemoryCheckpoint checkpoint;
  const size_t tensor =
      checkpoint.Add({.parameter = "w", .shape = {10}}, UniqueValues(10));
  checkpoint.Poison(tensor);
  EXPECT_EQ(ErrorOf([&] {
              ReadTensorF32(checkpoint, tensor, {0, 10});
            })
                .place()
                .tensor,
            "w/momentum");
}

TEST(FindTensorTest, ByKeyAndByTiedName) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "a", .shape = {2}}, UniqueValues(2));
  const size_t b = checkpoint.Add(
      {.parameter = "b", .kind = "master", .shape = {2}}, UniqueValues(2));
  checkpoint.mutable_info().aliases["tied"] = "b";
  EXPECT_EQ(FindTensor(checkpoint, {"b", "master"}), b);
  EXPECT_EQ(FindTensor(checkpoint, {"tied", "master"}), b);
  EXPECT_FALSE(FindTensor(checkpoint, {"b", "momentum"}));
  EXPECT_FALSE(FindTensor(checkpoint, {"c", "master"}));
}

TEST(RanksOfTest, AscendingAndOnce) {
  MemoryCheckpoint checkpoint;
  const size_t tensor = checkpoint.Add(
      {.parameter = "w", .shape = {10}, .num_pieces = 3}, UniqueValues(10));
  EXPECT_THAT(RanksOf(checkpoint, tensor), ElementsAre(0, 1, 2));
}

TEST(ScalarTest, RenderedAsPythonWould) {
  EXPECT_EQ(ScalarToString(std::monostate()), "none");
  EXPECT_EQ(ScalarToString(true), "true");
  EXPECT_EQ(ScalarToString(int64_t{-3}), "-3");
  EXPECT_EQ(ScalarToString(0.02), "0.02");
  EXPECT_EQ(ScalarToString(std::string("gram")), "gram");
  EXPECT_EQ(ScalarToString(std::vector<double>{0.9, 0.95}), "[0.9, 0.95]");
}

TEST(FindingTest, IsRenderedLikeAnError) {
  const Error error(ErrorCode::kDataLoss, "cut", {.file = "f", .tensor = "t"});
  const Finding finding = Finding::FromError(error, "structure");
  EXPECT_EQ(finding.code, "structure");
  EXPECT_EQ(finding.severity, Finding::Severity::kFault);
  EXPECT_EQ(finding.ToString(), error.what());
}

TEST(VerifyReportTest, OnlyFaultsMakeItNotWhole) {
  VerifyReport report;
  EXPECT_TRUE(report.whole());
  report.findings.push_back({.severity = Finding::Severity::kWarning});
  report.findings.push_back({.severity = Finding::Severity::kNote});
  EXPECT_TRUE(report.whole());
  report.findings.push_back({.severity = Finding::Severity::kFault});
  EXPECT_FALSE(report.whole());
}

}  // namespace
}  // namespace muonstore
