// k steps, a save, a resume on other ranks, stage and tier, and k steps are 2k
// steps, bit for bit.

#include <array>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/open.h"
#include "muonstore/resume.h"
#include "muonstore/save.h"
#include "tests/checkpoint/live_run.h"
#include "tests/store/store_ranks.h"
#include "tests/testutil/scratch.h"

namespace muonstore {
namespace {

using testing::IsEmpty;
using testutil::LiveRun;
using testutil::StateBytes;
using testutil::StepSetup;

// Step 4 and 8 overflow.
constexpr int64_t kSaveAt = 6;
constexpr int64_t kNumSteps = 11;

enum class Home {
  kDefault,
  kPinned,
  kNvme,              // Everything, however small.
  kResidentMomentum,  // The rest on NVMe.
  kMixed,             // Segments below a size in memory, the others not.
};

struct Side {
  int32_t stage = 2;
  int32_t num_ranks = 1;
  Home home = Home::kDefault;

  friend std::ostream& operator<<(std::ostream& out, const Side& side) {
    constexpr std::array<const char*, 5> kNames = {
        "", "_pinned", "_nvme", "_resident_momentum", "_mixed"};
    return out << side.stage << "x" << side.num_ranks
               << kNames.at(static_cast<size_t>(side.home));
  }
};

struct Case {
  Side saved;
  Side resumed;
  SaveOptions options;

  friend void PrintTo(const Case& one, std::ostream* out) {
    *out << one.saved << "_to_" << one.resumed
         << (one.options.asynchronous ? "_asynchronous" : "")
         << (one.options.zstd_level > 0 ? "_zstd" : "")
         << (one.options.num_threads > 1 ? "_threads" : "");
  }
};

StepSetup SetupOf(const Side& side, const std::string& directory) {
  StepSetup setup{.stage = side.stage};
  KindPolicy& rest = setup.tiers.rest;
  if (side.home == Home::kPinned) rest.tier = MakePinnedHostTier();
  if (side.home == Home::kDefault || side.home == Home::kPinned) return setup;
  rest.tier = MakeNvmeTier({.directory = directory});
  rest.resident_below_bytes = side.home == Home::kMixed ? 500 : 0;
  if (side.home == Home::kResidentMomentum) {
    setup.tiers.kinds["momentum"].tier = MakePinnedHostTier();
  }
  return setup;
}

class SaveResumeTest : public testing::TestWithParam<Case> {
 protected:
  // Steps go on after the call of an asynchronous save.
  void SaveRun(const std::shared_ptr<Communicator>& ranks) {
    LiveRun run(ranks, SetupOf(GetParam().saved, nvme()));
    run.Steps(0, kSaveAt);
    Saver saver(run.store(), root());
    const SaveHandle handle = saver.Save("t", GetParam().options);
    run.Steps(kSaveAt, kSaveAt + 3);
    handle.Wait();
    EXPECT_GT(handle.report().rank_bytes, 0U);
    EXPECT_GE(handle.report().total_bytes, handle.report().rank_bytes);
    saver.Close();
    run.Close();
  }

  void ResumeRun(const std::shared_ptr<Communicator>& ranks,
                 const StateBytes& middle, const StateBytes& end) {
    LiveRun run(ranks, SetupOf(GetParam().resumed, nvme()));
    run.Steps(0, 1);  // Whatever is there is overwritten.
    const ResumeReport report = Resume(run.store(), root());
    EXPECT_EQ(report.tag, "t");
    EXPECT_EQ(report.step, kSaveAt);
    EXPECT_THAT(report.passed_over, IsEmpty());
    EXPECT_THAT(report.load.missing, IsEmpty());
    EXPECT_TRUE(run.State() == middle);
    run.Steps(kSaveAt, kNumSteps);
    EXPECT_TRUE(run.State() == end);
    run.Close();
  }

  std::string root() const { return (scratch_ / "root").string(); }
  std::string nvme() const { return scratch_.path().string(); }

  testutil::Scratch scratch_;
};

TEST_P(SaveResumeTest, EqualsARunThatWasNotInterrupted) {
  const StateBytes middle = testutil::StateAfter(kSaveAt);
  const StateBytes end = testutil::StateAfter(kNumSteps);
  ASSERT_TRUE(middle != end);
  testutil::RunConnectedRanks(GetParam().saved.num_ranks,
                              [&](const auto& ranks) { SaveRun(ranks); });
  const VerifyReport report = VerifyCheckpoint(PosixFileSystem(), root());
  EXPECT_TRUE(report.whole());
  EXPECT_THAT(report.findings, IsEmpty());
  testutil::RunConnectedRanks(
      GetParam().resumed.num_ranks,
      [&](const auto& ranks) { ResumeRun(ranks, middle, end); });
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const std::vector<Side> sides = {{1, 2},
                                   {2, 1, Home::kNvme},
                                   {2, 3},
                                   {3, 2, Home::kPinned},
                                   {3, 3, Home::kMixed},
                                   {2, 2, Home::kResidentMomentum},
                                   {3, 2, Home::kNvme}};
  for (size_t i = 0; i < sides.size(); ++i) {
    for (const bool asynchronous : {false, true}) {
      cases.push_back({sides[i],
                       sides[(i + (asynchronous ? 1 : 2)) % sides.size()],
                       {.asynchronous = asynchronous}});
    }
  }
  cases.push_back({{2, 2}, {3, 2}, {.asynchronous = true, .zstd_level = 3}});
  cases.push_back({{2, 2}, {1, 1}, {.zstd_level = 1, .num_threads = 3}});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, SaveResumeTest, testing::ValuesIn(Cases()),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace muonstore
