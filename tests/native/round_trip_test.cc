// What is written is read back, bit by bit, whatever the cut.
#include <random>

#include <gtest/gtest.h>

#include "formats/native/checkpoint.h"
#include "formats/native/verify.h"
#include "muonstore/open.h"
#include "src/base/str.h"
#include "tests/native/compare.h"
#include "tests/native/random_checkpoint.h"
#include "tests/native/save.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/scratch.h"

namespace muonstore::native {
namespace {

std::string FaultsOf(const VerifyReport& report) {
  std::string faults;
  for (const Finding& finding : report.findings) {
    if (finding.severity == Finding::Severity::kFault &&
        finding.code != "missing_elements") {
      faults += finding.ToString() + "\n";
    }
  }
  return faults;
}

void CheckRoundTrip(const Checkpoint& source, const ZeroRule& rule,
                    const SinkOptions& options) {
  const testutil::Scratch scratch;
  const auto fs = PosixFileSystem();
  const TargetLayout layout = LayoutOf(source, rule);
  const std::string path =
      Save(fs, scratch.path().string(), options, source, layout);
  const auto copy = NativeCheckpoint::Open(fs, path, {.allow_loss = true});
  ExpectSameTensors(source, *copy);
  ExpectSameRun(source.info(), copy->info());
  EXPECT_EQ(copy->info().num_ranks, rule.num_ranks);
  EXPECT_EQ(copy->info().stage, rule.stage);
  EXPECT_EQ(FaultsOf(VerifyTag(fs, path, {})), "");
  // A copy of the copy, cut in another way.
  if (options.zstd_level == 0) {
    CheckRoundTrip(*copy, {.stage = 3, .num_ranks = 2},
                   {.tag = "again", .zstd_level = 1});
  }
}

class NativeRoundTrip : public testing::TestWithParam<uint32_t> {};

TEST_P(NativeRoundTrip, EveryBitOfRandomState) {
  std::mt19937 random(GetParam());
  const auto source = RandomCheckpoint(random);
  const ZeroRule rule = RandomRule(random);
  SinkOptions options{.tag = "step7", .block_bytes = 4096};
  CheckRoundTrip(*source, rule, options);
  options.zstd_level = 3;
  CheckRoundTrip(*source, rule, options);
}

INSTANTIATE_TEST_SUITE_P(Seeds, NativeRoundTrip, testing::Range(0U, 60U));

class NativeOfDeepSpeed
    : public testing::TestWithParam<testutil::DeepSpeedTag> {};

TEST_P(NativeOfDeepSpeed, KeepsEveryTensorInItsUnits) {
  const auto source = OpenCheckpoint(
      PosixFileSystem(), GetParam().path().string(), {.allow_loss = true});
  for (const ZeroRule& rule : {ZeroRule{.stage = 1, .num_ranks = 1},
                               ZeroRule{.stage = 2, .num_ranks = 3},
                               ZeroRule{.stage = 3, .num_ranks = 4}}) {
    SCOPED_TRACE(StrCat("stage ", rule.stage));
    CheckRoundTrip(*source, rule, {.tag = "tag"});
  }
}

INSTANTIATE_TEST_SUITE_P(Tags, NativeOfDeepSpeed,
                         testing::ValuesIn(testutil::DeepSpeedTags()),
                         [](const auto& param) {
                           return testutil::TestName(param.param.ToString());
                         });

}  // namespace
}  // namespace muonstore::native
