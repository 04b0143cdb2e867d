// Every case to every stage, rank count and offload mode.

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/deepspeed/checkpoint.h"
#include "muonstore/file_system.h"
#include "tests/deepspeed/convert_in_test.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/scratch.h"

namespace muonstore::deepspeed {
namespace {

using testutil::DeepSpeedTag;

// Each pair of values occurs together.
std::vector<Wish> PairwiseWishes() {
  std::vector<Wish> wishes;
  const std::vector<int32_t> rank_counts = {1, 2, 3, 4, 8, 11};
  for (size_t r = 0; r < rank_counts.size(); ++r) {
    for (int32_t stage = 1; stage <= 3; ++stage) {
      Wish wish{.stage = stage, .num_ranks = rank_counts[r]};
      wish.offload = (r + static_cast<size_t>(stage)) % 2 == 0 ? "none" : "cpu";
      wish.order = r % 2 == 0 ? MuonOrder::kAsGiven : MuonOrder::kSortedByShape;
      wish.sub_group_size = r % 3 == 0 ? 700 : 1'000'000'000;
      wish.parameter_alignment = r % 3 == 1;
      wishes.push_back(wish);
    }
  }
  return wishes;
}

// fp16 momentum in another unit has other values.
bool ChangesUnit(const Checkpoint& source, const Wish& wish) {
  return source.info().precision == "fp16" &&
         (wish.offload == "none") != (source.info().offload == "none");
}

void ExpectEqualAfterwards(const Checkpoint& source, const Wish& wish) {
  SCOPED_TRACE(ToString(wish));
  const testutil::Scratch scratch;
  const auto there = ConvertTo(source, LayoutOf(source, wish),
                               (scratch / "there").string(), "tag");
  EXPECT_EQ(DifferenceOf(source, *there), "");
  EXPECT_EQ(there->info().num_ranks, wish.num_ranks);
  EXPECT_EQ(there->info().stage, wish.stage);
  EXPECT_EQ(there->info().offload, wish.offload);
}

class SinkMatrixTest : public testing::TestWithParam<DeepSpeedTag> {};

TEST_P(SinkMatrixTest, NoBitDiffers) {
  const auto source = DeepSpeedCheckpoint::Open(
      PosixFileSystem(), GetParam().path().string(), {.allow_loss = true});
  for (const Wish& wish : PairwiseWishes()) {
    if (!ChangesUnit(*source, wish)) {
      ExpectEqualAfterwards(*source, wish);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTags, SinkMatrixTest,
                         testing::ValuesIn(testutil::DeepSpeedTags()),
                         [](const auto& param) {
                           return testutil::TestName(param.param.ToString());
                         });

}  // namespace
}  // namespace muonstore::deepspeed
