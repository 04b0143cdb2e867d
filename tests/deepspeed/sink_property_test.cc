// Random checkpoints to random layouts: no bit differs, and verify finds
// nothing in the result.

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "formats/deepspeed/checkpoint.h"
#include "formats/deepspeed/verify.h"
#include "muonstore/file_system.h"
#include "tests/deepspeed/checkpoint_writer.h"
#include "tests/deepspeed/convert_in_test.h"
#include "tests/deepspeed/random_spec.h"
#include "tests/testutil/scratch.h"

namespace muonstore::deepspeed {
namespace {

Wish RandomWish(Random& random) {
  Wish wish;
  wish.stage = static_cast<int32_t>(random.Pick(1, 3));
  wish.num_ranks = static_cast<int32_t>(random.Chance(10) ? random.Pick(9, 30)
                                                          : random.Pick(1, 8));
  wish.offload = random.Chance(50) ? "none" : "cpu";
  wish.order =
      random.Chance(50) ? MuonOrder::kAsGiven : MuonOrder::kSortedByShape;
  wish.sub_group_size = random.Chance(50) ? random.Pick(1, 40) : 1'000'000'000;
  wish.parameter_alignment = random.Chance(30);
  return wish;
}

bool ChangesMomentumUnit(const Checkpoint& source, const Wish& wish) {
  const CheckpointInfo& info = source.info();
  return info.precision == "fp16" && info.momentum &&
         (info.momentum->unit == MomentumUnit::kLossScaled) !=
             (wish.offload == "none");
}

void ExpectNoFault(const std::string& tag) {
  for (const Finding& finding :
       VerifyTag(PosixFileSystem(), tag, {}).findings) {
    EXPECT_NE(finding.severity, Finding::Severity::kFault)
        << finding.ToString();
  }
}

void ConvertRandomly(const CheckpointSpec& spec, Random& random) {
  const testutil::Scratch scratch;
  MakeCheckpoint(spec).Write(scratch / "source");
  const auto source = DeepSpeedCheckpoint::Open(
      PosixFileSystem(), (scratch / "source").string(), {.allow_loss = true});
  for (int i = 0; i < 3; ++i) {
    const Wish wish = RandomWish(random);
    if (ChangesMomentumUnit(*source, wish)) {
      continue;
    }
    SCOPED_TRACE(ToString(wish));
    const auto there = ConvertTo(*source, LayoutOf(*source, wish),
                                 (scratch / "there").string(), "tag");
    EXPECT_EQ(DifferenceOf(*source, *there), "");
    ExpectNoFault((scratch / "there/tag").string());
  }
}

class SinkPropertyTest : public testing::TestWithParam<int> {};

TEST_P(SinkPropertyTest, RandomCheckpointsToRandomLayouts) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed * 5 + static_cast<uint64_t>(GetParam()));
    const CheckpointSpec spec = RandomSpec(random, GetParam());
    SCOPED_TRACE(testing::Message()
                 << "seed " << seed << ": " << Describe(spec));
    try {
      ConvertRandomly(spec, random);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
    if (HasFailure()) {
      return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, SinkPropertyTest, testing::Values(1, 2, 3));

}  // namespace
}  // namespace muonstore::deepspeed
