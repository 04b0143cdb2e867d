// Weights that a target holds as round(master) alone, where they are not.
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/convert.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/memory_checkpoint.h"
#include "tests/testutil/memory_sink.h"

namespace muonstore {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testutil::MemoryCheckpoint;
using testutil::MemorySink;
using testutil::UniqueValues;

constexpr int64_t kNumElements = 100'000;
constexpr size_t kMasterTensor = 0;
constexpr size_t kWeightTensor = 1;

// Masters that bf16 rounds, and their weights.
class ImpliedWeightsTest : public testing::Test {
 protected:
  ImpliedWeightsTest() {
    const std::vector<float> values = UniqueValues(kNumElements, 1.001F);
    source_.Add({.parameter = "w",
                 .kind = "master",
                 .shape = {kNumElements},
                 .num_pieces = 3},
                values);
    source_.Add({.parameter = "w",
                 .kind = "weight",
                 .shape = {kNumElements},
                 .dtype = DType::kBF16,
                 .num_pieces = 2},
                values);
  }

  void Change(int64_t element) {
    const uint16_t bits = 0x4400;  // 512
    source_.SetElement(kWeightTensor, element,
                       std::as_bytes(std::span(&bits, 1)));
  }

  MemoryCheckpoint source_;
};

// The tensor in two files, cut at `cut`, each behind a gap.
std::vector<MemorySink::FilePlan> InTwoFiles(size_t tensor, DType dtype,
                                             int64_t cut) {
  const auto segment = [&](int64_t begin, int64_t end) {
    return SinkSegment{.name = "segment",
                       .dtype = dtype,
                       .num_elements = end - begin + 5,
                       .pieces = {{.tensor = tensor,
                                   .tensor_offset = begin,
                                   .segment_offset = 5,
                                   .length = end - begin}}};
  };
  return {{segment(0, cut)}, {segment(cut, kNumElements)}};
}

MemorySink MastersAlone() {
  return MemorySink(InTwoFiles(kMasterTensor, DType::kF32, 33'333));
}

// Blocks of some ten thousand elements.
ConvertOptions InBlocks() { return {.memory_limit_bytes = 1 << 20, .jobs = 2}; }

TEST_F(ImpliedWeightsTest, RoundedMastersAreNoLoss) {
  MemorySink sink = MastersAlone();
  const ConversionPlan plan = PlanConversion(source_, sink);
  EXPECT_THAT(plan.implied_weights, SizeIs(1));
  EXPECT_THAT(plan.losses, IsEmpty());
  EXPECT_THAT(FindValueLosses(source_, sink, plan, InBlocks()), IsEmpty());
  EXPECT_THAT(Convert(source_, sink, plan, InBlocks()), IsEmpty());
  EXPECT_TRUE(sink.committed());
}

TEST_F(ImpliedWeightsTest, OthersAreRefusedByName) {
  for (const int64_t element : {int64_t{99'999}, int64_t{33'332}}) {
    Change(element);
  }
  MemorySink sink = MastersAlone();
  const ConversionPlan plan = PlanConversion(source_, sink);
  EXPECT_THAT(plan.losses, IsEmpty());
  ConvertOptions options = InBlocks();
  options.jobs = 1;  // The first file is read before the second.
  const auto error = ErrorOf([&] { Convert(source_, sink, plan, options); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error->message(), HasSubstr("w/weight: not round(master)"));
  EXPECT_THAT(error->message(), HasSubstr("2 elements, the first at 33332"));
  EXPECT_THAT(error->message(), HasSubstr("--allow-loss weights_differ"));
  EXPECT_FALSE(sink.committed());

  const auto found = FindValueLosses(source_, sink, plan, InBlocks());
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].kind, kWeightsLoss);
  EXPECT_EQ(found[0].tensors, std::vector<size_t>{kWeightTensor});
  EXPECT_THAT(found[0].message,
              HasSubstr("2 elements, the first at 33332, by at most"));
}

TEST_F(ImpliedWeightsTest, WithLeaveTheyAreListedBeforeTheCommit) {
  Change(0);
  MemorySink sink = MastersAlone();
  size_t num_seen = 0;
  ConvertOptions options = InBlocks();
  options.allowed_losses = {kWeightsLoss};
  options.before_commit = [&](std::span<const SinkLoss> found) {
    num_seen = found.size();
  };
  const auto losses =
      Convert(source_, sink, PlanConversion(source_, sink), options);
  ASSERT_THAT(losses, SizeIs(1));
  EXPECT_THAT(losses[0].message, HasSubstr("1 element, the first at 0,"));
  EXPECT_EQ(num_seen, 1U);
  EXPECT_TRUE(sink.committed());
}

TEST_F(ImpliedWeightsTest, WhatOneOfTheTwoLacksIsNotCompared) {
  source_.mutable_tensor(kMasterTensor).missing = {{10, 20}};
  source_.mutable_tensor(kWeightTensor).missing = {{15, 30}, {50, 60}};
  for (const int64_t element : {10, 19, 29, 55}) Change(element);
  MemorySink sink = MastersAlone();
  const ConversionPlan plan = PlanConversion(source_, sink);
  EXPECT_THAT(FindValueLosses(source_, sink, plan, InBlocks()), IsEmpty());
  Change(30);
  EXPECT_THAT(FindValueLosses(source_, sink, plan, InBlocks()), SizeIs(1));
}

TEST_F(ImpliedWeightsTest, ANanIsARoundedNan) {
  const uint32_t master = 0x7F800001;
  const uint16_t weight = 0x7FFF;
  source_.SetElement(kMasterTensor, 7, std::as_bytes(std::span(&master, 1)));
  source_.SetElement(kWeightTensor, 7, std::as_bytes(std::span(&weight, 1)));
  const MemorySink sink = MastersAlone();
  EXPECT_THAT(
      FindValueLosses(source_, sink, PlanConversion(source_, sink), InBlocks()),
      IsEmpty());
}

TEST_F(ImpliedWeightsTest, AWeightWithAPlaceOfItsOwnIsNotLookedAt) {
  Change(3);
  std::vector<MemorySink::FilePlan> files =
      InTwoFiles(kMasterTensor, DType::kF32, 50);
  for (auto& file : InTwoFiles(kWeightTensor, DType::kBF16, 50)) {
    files.push_back(file);
  }
  MemorySink sink(files);
  const ConversionPlan plan = PlanConversion(source_, sink);
  EXPECT_THAT(plan.implied_weights, IsEmpty());
  EXPECT_THAT(Convert(source_, sink, plan, InBlocks()), IsEmpty());
}

}  // namespace
}  // namespace muonstore
