// Values that a narrower dtype cannot hold are refused by name.
#include <limits>
#include <span>
#include <string>
#include <tuple>
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

SinkSegment Whole(const Checkpoint& source, DType dtype) {
  const int64_t count = source.tensors()[0].shape.num_elements();
  return {.name = "segment",
          .dtype = dtype,
          .num_elements = count,
          .pieces = {{.tensor = 0, .length = count}}};
}

void RunConversion(const Checkpoint& source, MemorySink& sink) {
  Convert(source, sink, PlanConversion(source, sink), {});
}

// 65520 is the first value that rounds to an infinite f16; 0x7f7fffff, the
// largest float, to an infinite bf16. What is infinite already is no loss.
TEST(OverflowTest, ValuesThatOverflowAreRefusedByName) {
  const float largest = std::numeric_limits<float>::max();
  const float infinite = std::numeric_limits<float>::infinity();
  for (const auto& [dtype, values, count] :
       {std::tuple(DType::kF16,
                   std::vector<float>{1, 65519, 65520, -1e6F, infinite}, 2),
        std::tuple(DType::kBF16,
                   std::vector<float>{1, 3.38e38F, largest, 2, infinite}, 1)}) {
    MemoryCheckpoint source;
    source.Add({.parameter = "w", .shape = {5}, .num_pieces = 2}, values);
    MemorySink sink({{Whole(source, dtype)}});
    const ConversionPlan plan = PlanConversion(source, sink);
    EXPECT_THAT(plan.losses, IsEmpty());
    const auto error = ErrorOf([&] { Convert(source, sink, plan, {}); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error->message(), HasSubstr("--allow-loss overflow"));
    EXPECT_FALSE(sink.committed());
    EXPECT_THAT(FindValueLosses(source, sink, plan, {}), SizeIs(1));

    MemorySink allowed({{Whole(source, dtype)}});
    const auto losses =
        Convert(source, allowed, plan, {.allowed_losses = {kOverflowLoss}});
    ASSERT_THAT(losses, SizeIs(1));
    EXPECT_EQ(losses[0].kind, kOverflowLoss);
    EXPECT_THAT(losses[0].message,
                HasSubstr("w/momentum: " + std::to_string(count) + " value"));
    EXPECT_TRUE(allowed.committed());
    EXPECT_EQ(allowed.Floats(0, 0)[2], infinite);
  }
}

TEST(OverflowTest, ScalingAndDoublesMayOverflowToo) {
  MemoryCheckpoint source;
  source.Add({.parameter = "w", .shape = {2}, .dtype = DType::kF16},
             {60000, 1});
  SinkSegment segment = Whole(source, DType::kF16);
  segment.scale = 2;
  MemorySink scaled({{segment}});
  EXPECT_THROW(RunConversion(source, scaled), Error);

  const std::vector<double> values = {1e39, 1};
  MemoryCheckpoint doubles;
  doubles.Add({.parameter = "w", .shape = {2}, .dtype = DType::kF64},
              std::as_bytes(std::span(values)));
  MemorySink narrowed({{Whole(doubles, DType::kF32)}});
  EXPECT_THROW(RunConversion(doubles, narrowed), Error);
}

}  // namespace
}  // namespace muonstore
