// Removing a tag: after a crash at any point it is whole, or gone once the next
// writer has come.
#include "formats/native/remove_tag.h"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/native/leftovers.h"
#include "formats/native/verify.h"
#include "muonstore/error.h"
#include "tests/native/random_checkpoint.h"
#include "tests/native/save.h"
#include "tests/testutil/simulated_file_system.h"

namespace muonstore::native {
namespace {

using testutil::Fault;
using testutil::SimulatedFileSystem;

constexpr const char* kRoot = "/sim/root";
constexpr uint64_t kNumRestarts = 8;

std::shared_ptr<SimulatedFileSystem> WithTag() {
  auto fs = std::make_shared<SimulatedFileSystem>(PosixFileSystem(), "/sim");
  const auto source = SmallCheckpoint();
  Save(fs, kRoot, {.tag = "t"}, *source,
       LayoutOf(*source, {.stage = 2, .num_ranks = 2}));
  return fs;
}

bool TryRemove(const std::shared_ptr<SimulatedFileSystem>& fs) {
  try {
    os::OutputRoot root(fs, kRoot);
    RemoveTag(root, "t");
    return true;
  } catch (const Error&) {
    return false;
  }
}

void ExpectWholeOrGone(const std::shared_ptr<SimulatedFileSystem>& fs) {
  {
    os::OutputRoot root(fs, kRoot);
    CleanLeftovers(root);
  }
  // An empty folder is no tag.
  if (!fs->Stat("/sim/root/t") || fs->List("/sim/root/t").empty()) return;
  EXPECT_TRUE(fs->Stat("/sim/root/t/manifest.json").has_value());
  EXPECT_TRUE(VerifyTag(fs, "/sim/root/t", {}).whole());
}

TEST(RemoveTag, LeavesNothing) {
  const auto fs = WithTag();
  EXPECT_TRUE(TryRemove(fs));
  EXPECT_EQ(fs->Everything().size(), 1U);  // The root.
}

TEST(RemoveTag, LeavesWhatIsNotOurs) {
  const auto fs = WithTag();
  const auto file = fs->CreateFile("/sim/root/t/notes.txt");
  file->Close();
  EXPECT_TRUE(TryRemove(fs));
  EXPECT_THAT(fs->List("/sim/root/t"), testing::ElementsAre("notes.txt"));
}

TEST(RemoveTag, AfterAnyCrashItIsWholeOrGone) {
  const auto start = WithTag();
  const auto counted = start->Copy();
  TryRemove(counted);
  for (const Fault fault : {Fault::kError, Fault::kPowerLoss}) {
    for (int64_t n = 0; n <= counted->num_operations(); ++n) {
      const auto crashed = start->Copy();
      crashed->FailAfter(n, fault);
      TryRemove(crashed);
      if (n == counted->num_operations() && fault == Fault::kPowerLoss) {
        crashed->LosePower();
      }
      for (uint64_t seed = 0; seed < kNumRestarts; ++seed) {
        SCOPED_TRACE("operation " + std::to_string(n));
        const auto fs = crashed->Copy();
        if (!crashed->has_power()) fs->Restart(seed);
        ExpectWholeOrGone(fs);
      }
    }
  }
}

}  // namespace
}  // namespace muonstore::native
