// A rank that fails, dies or hangs in a save: every rank hears of it, and what
// was there stays.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/open.h"
#include "muonstore/resume.h"
#include "muonstore/save.h"
#include "tests/checkpoint/live_run.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/forwarding_file_system.h"
#include "tests/testutil/scratch.h"

namespace muonstore {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testutil::LiveRun;

// Does something before a rank file is made.
class TrippingFileSystem : public testutil::ForwardingFileSystem {
 public:
  explicit TrippingFileSystem(std::function<void(const std::string&)> trip)
      : ForwardingFileSystem(PosixFileSystem()), trip_(std::move(trip)) {}

  std::unique_ptr<WritableFile> CreateFile(const std::string& path) override {
    if (path.find("/rank-") != std::string::npos) trip_(path);
    return base().CreateFile(path);
  }

 private:
  std::function<void(const std::string&)> trip_;
};

class SaveFailureTest : public testing::TestWithParam<int32_t> {
 protected:
  SaveFailureTest() {
    LiveRun run(MakeSingleCommunicator(), {});
    Saver(run.store(), root()).Save("old");
    before_ = Everything();
  }

  std::string root() const { return (scratch_ / "root").string(); }

  std::vector<std::string> Everything() const {
    std::vector<std::string> all;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(root())) {
      all.push_back(entry.path().string());
      if (entry.is_regular_file()) {
        all.back() += testutil::ReadBytes(entry.path());
      }
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  // The save of two ranks of which the one that fails does `trip`.
  std::shared_ptr<FileSystem> FilesOf(
      int32_t rank, const std::function<void(const std::string&)>& trip) const {
    if (rank != GetParam()) return PosixFileSystem();
    return std::make_shared<TrippingFileSystem>(trip);
  }

  testutil::Scratch scratch_;
  std::vector<std::string> before_;
};

TEST_P(SaveFailureTest, AFullDiskOfOneRankIsAnErrorOfAll) {
  testutil::RunConnectedRanks(2, [&](const auto& ranks) {
    LiveRun run(ranks, {});
    const auto fs = FilesOf(ranks->rank(), [](const std::string& path) {
      throw Error(ErrorCode::kResourceExhausted, "no space", {.file = path});
    });
    Saver saver(run.store(), root(), fs);
    for (const char* tag : {"new", "old"}) {
      const SaveHandle handle =
          saver.Save(tag, {.asynchronous = true, .overwrite = true});
      const auto error = ErrorOf([&] { handle.Wait(); });
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->code(), ErrorCode::kResourceExhausted);
      EXPECT_THAT(error->message(), HasSubstr("no space"));
      EXPECT_EQ(error->message().starts_with("on rank"),
                ranks->rank() != GetParam());
      ranks->Barrier();
      EXPECT_TRUE(Everything() == before_);
      ranks->Barrier();
    }
    // The store is usable, and so is another saver.
    run.Steps(0, 1);
    saver.Close();
    Saver again(run.store(), root());
    again.Save("new");
    again.Close();
    run.Close();
  });
  EXPECT_TRUE(VerifyCheckpoint(PosixFileSystem(), root()).whole());
}

TEST_P(SaveFailureTest, ADeadRankIsAnErrorOfTheOther) {
  testutil::RunConnectedRanks(
      2,
      [&](const auto& ranks) {
        auto run = std::make_unique<LiveRun>(ranks, testutil::StepSetup{});
        const auto fs = FilesOf(ranks->rank(), [](const std::string& /*path*/) {
          std::raise(SIGKILL);
        });
        Saver saver(run->store(), root(), fs);
        EXPECT_EQ(CodeOf([&] { saver.Save("new"); }), ErrorCode::kUnavailable);
        EXPECT_EQ(CodeOf([&] { saver.Save("new"); }), ErrorCode::kUnavailable);
      },
      {.killed = {GetParam()}});
  LiveRun run(MakeSingleCommunicator(), {});
  EXPECT_EQ(Resume(run.store(), root()).tag, "old");
  Saver(run.store(), root()).Save("old", {.overwrite = true});
  // A folder that rank 0 made and nobody removed is no tag.
  const auto tags = ListTags(PosixFileSystem(), root()).tags;
  EXPECT_EQ(tags.size(), 1U);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "root/new") &&
               !std::filesystem::is_empty(scratch_ / "root/new"));
  EXPECT_THAT(VerifyCheckpoint(PosixFileSystem(), root()).findings, IsEmpty());
}

TEST_P(SaveFailureTest, AHungRankIsAnErrorOfTheOtherWithinTheTimeout) {
  const std::string rendezvous = testutil::UniqueRendezvous();
  const auto be_rank = [&](int32_t rank) {
    auto run = std::make_unique<LiveRun>(
        ConnectSharedMemory({.rank = rank,
                             .size = 2,
                             .rendezvous = rendezvous,
                             .timeout = std::chrono::milliseconds(2000)}),
        testutil::StepSetup{});
    const auto fs =
        FilesOf(rank, [](const std::string& /*path*/) { std::raise(SIGSTOP); });
    Saver saver(run->store(), root(), fs);
    const auto error = ErrorOf([&] { saver.Save("new"); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
    EXPECT_THAT(error->what(), HasSubstr("rank " + std::to_string(GetParam())));
  };
  testutil::RunRanks(2, be_rank, {.killed = {GetParam()}});
  LiveRun run(MakeSingleCommunicator(), {});
  EXPECT_EQ(Resume(run.store(), root()).tag, "old");
}

INSTANTIATE_TEST_SUITE_P(Ranks, SaveFailureTest, testing::Values(0, 1));

TEST(SaveRecordTest, ARecordThatNobodyCouldResumeFromIsRefused) {
  const testutil::Scratch scratch;
  LiveRun run(MakeSingleCommunicator(), {});
  Saver saver(run.store(), (scratch / "root").string());
  const StoreRecord sound = run.store().record();
  for (const auto& spoil : std::vector<std::function<void(StoreRecord&)>>{
           [](StoreRecord& record) { record.group_steps.clear(); },
           [](StoreRecord& record) { record.group_steps[0] = -7; },
           [](StoreRecord& record) {
             record.steps = std::numeric_limits<int64_t>::max();
           }}) {
    spoil(run.store().record());
    EXPECT_THAT(MessageOf([&] { saver.Save("bad"); }),
                HasSubstr("the store's record"));
    run.store().record() = sound;
  }
  saver.Save("good");
}

}  // namespace
}  // namespace muonstore
