// Which checkpoint a store goes on from, and that it is never a mixture.

#include "muonstore/resume.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/native/file_names.h"
#include "muonstore/open.h"
#include "muonstore/prune.h"
#include "muonstore/save.h"
#include "tests/checkpoint/live_run.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/forwarding_file_system.h"
#include "tests/testutil/scratch.h"

namespace muonstore {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testutil::LiveRun;
using testutil::StateBytes;

// A root with the tags s1, s2 and s3, of which `latest` names the last.
class ResumeTest : public testing::Test {
 protected:
  ResumeTest() {
    LiveRun run(MakeSingleCommunicator(), {});
    Saver saver(run.store(), root());
    for (int64_t step = 0; step < 3; ++step) {
      run.Steps(step, step + 1);
      saver.Save("s" + std::to_string(step + 1));
      states_.push_back(run.State());
    }
  }

  std::string root() const { return (scratch_ / "root").string(); }

  std::filesystem::path RankFile(const std::string& tag) const {
    for (const auto& entry :
         std::filesystem::directory_iterator(scratch_ / "root" / tag)) {
      if (entry.path().filename().string().starts_with("rank-")) {
        return entry.path();
      }
    }
    return {};
  }

  // Flips a bit of the payload: only a read finds it.
  void DamagePayload(const std::string& tag) const {
    std::string bytes = testutil::ReadBytes(RankFile(tag));
    bytes.at(4096 + 5) ^= 4;
    testutil::WriteBytes(RankFile(tag), bytes);
  }

  static std::vector<std::string> PassedOver(const ResumeReport& report) {
    std::vector<std::string> tags;
    for (const PassedOverTag& tag : report.passed_over) {
      tags.push_back(tag.tag);
      EXPECT_NE(tag.reason, "");
    }
    return tags;
  }

  // Resumes a new store and compares it with what `tag` held.
  ResumeReport ExpectResumed(int64_t step, const ResumeOptions& options) const {
    LiveRun run(MakeSingleCommunicator(), {.stage = 3});
    ResumeReport report = Resume(run.store(), root(), options);
    EXPECT_EQ(report.tag, "s" + std::to_string(step));
    EXPECT_EQ(report.step, step);
    EXPECT_TRUE(run.State() == states_[static_cast<size_t>(step - 1)]);
    return report;
  }

  testutil::Scratch scratch_;
  std::vector<StateBytes> states_;
};

TEST_F(ResumeTest, LatestOrTheTagThatIsAskedFor) {
  EXPECT_THAT(ExpectResumed(3, {}).passed_over, IsEmpty());
  ExpectResumed(1, {.tag = "s1"});
  testutil::WriteBytes(scratch_ / "root/latest", "s2");
  ExpectResumed(2, {});
}

TEST_F(ResumeTest, WithoutLatestTheNewest) {
  std::filesystem::remove(scratch_ / "root/latest");
  EXPECT_THAT(ExpectResumed(3, {}).passed_over, IsEmpty());
}

TEST_F(ResumeTest, DamageThatOpeningFindsIsPassedOver) {
  std::filesystem::resize_file(RankFile("s3"), 5000);
  const ResumeReport report = ExpectResumed(2, {});
  EXPECT_THAT(PassedOver(report), ElementsAre("s3"));
  EXPECT_THAT(report.passed_over[0].reason, HasSubstr("another size"));
}

TEST_F(ResumeTest, DamageThatReadingFindsIsPassedOverAndRefilled) {
  DamagePayload("s3");
  DamagePayload("s2");
  const ResumeReport report = ExpectResumed(1, {});
  EXPECT_THAT(PassedOver(report), ElementsAre("s3", "s2"));
  EXPECT_THAT(report.passed_over[1].reason, HasSubstr("block 0"));
}

TEST_F(ResumeTest, StrictTakesNoOther) {
  DamagePayload("s3");
  LiveRun run(MakeSingleCommunicator(), {});
  EXPECT_EQ(CodeOf([&] { Resume(run.store(), root(), {.strict = true}); }),
            ErrorCode::kDataLoss);
  EXPECT_TRUE(run.store().poisoned());
  std::filesystem::remove(RankFile("s3"));
  LiveRun other(MakeSingleCommunicator(), {});
  const StateBytes before = other.State();
  EXPECT_EQ(CodeOf([&] { Resume(other.store(), root(), {.strict = true}); }),
            ErrorCode::kDataLoss);
  EXPECT_FALSE(other.store().poisoned());
  EXPECT_TRUE(other.State() == before);
}

TEST_F(ResumeTest, ATagThatIsAskedForIsNeverReplaced) {
  DamagePayload("s2");
  LiveRun run(MakeSingleCommunicator(), {});
  EXPECT_EQ(CodeOf([&] { Resume(run.store(), root(), {.tag = "s2"}); }),
            ErrorCode::kDataLoss);
  LiveRun other(MakeSingleCommunicator(), {});
  const auto error =
      ErrorOf([&] { Resume(other.store(), root(), {.tag = "s9"}); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(other.store().poisoned());
}

TEST_F(ResumeTest, TheFolderOfATagAsksForIt) {
  DamagePayload("s3");
  testutil::RunConnectedRanks(2, [&](const auto& ranks) {
    LiveRun run(ranks, {});
    const ResumeReport report = Resume(run.store(), root() + "/s2/");
    EXPECT_EQ(report.tag, "s2");
    EXPECT_THAT(report.passed_over, IsEmpty());
    EXPECT_TRUE(run.State() == states_[1]);
    EXPECT_EQ(CodeOf([&] { Resume(run.store(), root() + "/s3"); }),
              ErrorCode::kDataLoss);
    run.Close();
  });
  std::filesystem::remove(scratch_ / "root/s1/manifest.json");
  LiveRun run(MakeSingleCommunicator(), {});
  EXPECT_TRUE(ErrorOf([&] { Resume(run.store(), root() + "/s1"); }));
  EXPECT_FALSE(run.store().poisoned());
}

TEST_F(ResumeTest, ATagWithoutItsManifestIsPassedOver) {
  std::filesystem::remove(scratch_ / "root/s3/manifest.json");
  EXPECT_THAT(PassedOver(ExpectResumed(2, {})), ElementsAre("s3"));
}

TEST_F(ResumeTest, LatestThatNamesNothing) {
  testutil::WriteBytes(scratch_ / "root/latest", "gone");
  const ResumeReport report = ExpectResumed(3, {});
  EXPECT_THAT(PassedOver(report), ElementsAre("latest"));
  EXPECT_THAT(report.passed_over[0].reason, HasSubstr("gone"));
  LiveRun run(MakeSingleCommunicator(), {});
  EXPECT_EQ(CodeOf([&] { Resume(run.store(), root(), {.strict = true}); }),
            ErrorCode::kDataLoss);
}

TEST_F(ResumeTest, WhereEverythingIsDamagedTheStoreIsPoisoned) {
  for (const char* tag : {"s1", "s2", "s3"}) DamagePayload(tag);
  LiveRun run(MakeSingleCommunicator(), {});
  const auto error = ErrorOf([&] { Resume(run.store(), root()); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kDataLoss);
  for (const char* tag : {"s1: ", "s2: ", "s3: "}) {
    EXPECT_THAT(error->what(), HasSubstr(tag));
  }
  EXPECT_TRUE(run.store().poisoned());
}

TEST_F(ResumeTest, WhereThereIsNothing) {
  LiveRun run(MakeSingleCommunicator(), {});
  std::filesystem::create_directory(scratch_ / "empty");
  std::filesystem::create_directories(scratch_ / "started/tag");
  for (const char* folder : {"empty", "none", "started"}) {
    EXPECT_EQ(
        CodeOf([&] { Resume(run.store(), (scratch_ / folder).string()); }),
        ErrorCode::kNotFound)
        << folder;
  }
  EXPECT_FALSE(run.store().poisoned());
}

// A mistake of the user is not mended by an older checkpoint.
TEST_F(ResumeTest, AnotherModelIsRefused) {
  std::vector<ParameterSpec> model = testutil::SmallModel();
  model[2].shape = Shape({6, 9});
  LiveRun run(MakeSingleCommunicator(), {.model = model});
  EXPECT_EQ(CodeOf([&] { Resume(run.store(), root()); }),
            ErrorCode::kInvalidArgument);
  EXPECT_FALSE(run.store().poisoned());
}

// Fails to read what `part` of a path names.
class BlindFileSystem : public testutil::ForwardingFileSystem {
 public:
  explicit BlindFileSystem(std::string part)
      : ForwardingFileSystem(PosixFileSystem()), part_(std::move(part)) {}

  std::unique_ptr<RandomAccessFile> OpenForRead(
      const std::string& path) override {
    if (path.find(part_) != std::string::npos) {
      throw Error(ErrorCode::kUnavailable, "made to fail", {.file = path});
    }
    return base().OpenForRead(path);
  }

 private:
  std::string part_;
};

TEST_F(ResumeTest, WhatOneRankCannotReadAllPassOver) {
  for (const char* part : {"s3/manifest", "s3/rank-"}) {
    testutil::RunConnectedRanks(3, [&](const auto& ranks) {
      LiveRun run(ranks, {.stage = 1});
      std::shared_ptr<FileSystem> fs = PosixFileSystem();
      if (ranks->rank() == 1) fs = std::make_shared<BlindFileSystem>(part);
      const ResumeReport report =
          Resume(run.store(), root(), {.file_system = fs});
      EXPECT_EQ(report.tag, "s2");
      ASSERT_THAT(PassedOver(report), ElementsAre("s3"));
      EXPECT_THAT(report.passed_over[0].reason, HasSubstr("made to fail"));
      EXPECT_TRUE(run.State() == states_[1]);
      run.Close();
    });
  }
}

// Two copies of a folder of which one was saved again: same step, same tag.
TEST_F(ResumeTest, RanksThatOpenDifferentSavesDisagree) {
  const std::string other = scratch_.Copy(scratch_ / "root", "other").string();
  {
    LiveRun run(MakeSingleCommunicator(), {});
    run.Steps(0, 3);
    Saver(run.store(), other).Save("s3", {.overwrite = true});
  }
  testutil::RunConnectedRanks(2, [&](const auto& ranks) {
    LiveRun run(ranks, {});
    EXPECT_EQ(CodeOf([&] {
                Resume(run.store(), ranks->rank() == 0 ? root() : other);
              }),
              ErrorCode::kInvalidArgument);
    EXPECT_FALSE(run.store().poisoned());
    run.Close();
  });
}

TEST_F(ResumeTest, PruningKeepsTheNewestAndLatest) {
  testutil::WriteBytes(scratch_ / "root/latest", "s1");
  EXPECT_THAT(Prune(PosixFileSystem(), root(), {.keep = 1}), ElementsAre("s2"));
  ExpectResumed(1, {});
  ExpectResumed(3, {.tag = "s3"});
  EXPECT_EQ(CodeOf([&] { Prune(PosixFileSystem(), root(), {.keep = 0}); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] {
              Prune(PosixFileSystem(), (scratch_ / "none").string(), {});
            }),
            ErrorCode::kNotFound);
}

// Of s1, s2 and s3, s3 is the newest.
TEST_F(ResumeTest, PruningFollowsNoLinkAndKeepsWhatLinksLeadTo) {
  namespace fs = std::filesystem;
  const fs::path folder = scratch_ / "root";
  fs::create_directories(scratch_ / "elsewhere");
  fs::copy(folder / "s1", scratch_ / "elsewhere/s9",
           fs::copy_options::recursive);
  fs::create_directory_symlink("../elsewhere/s9", folder / "s0");
  fs::create_directory_symlink("s1", folder / "best");
  testutil::WriteBytes(folder / "latest", "./s3/");
  EXPECT_THAT(Prune(PosixFileSystem(), root(), {.keep = 1}), ElementsAre("s2"));
  EXPECT_TRUE(fs::exists(scratch_ / "elsewhere/s9/manifest.json"));
  EXPECT_TRUE(fs::exists(folder / "best/manifest.json"));
  ExpectResumed(1, {.tag = "s1"});
}

TEST_F(ResumeTest, PruningKnowsEverySpellingOfLatest) {
  testutil::WriteBytes(scratch_ / "root/latest", "./s1/");
  EXPECT_THAT(Prune(PosixFileSystem(), root(), {.keep = 1}), ElementsAre("s2"));
  ExpectResumed(1, {});
}

// A damaged tag is no newer one, and is not removed either.
TEST_F(ResumeTest, PruningCountsWholeTagsOnly) {
  std::filesystem::remove(RankFile("s3"));
  EXPECT_THAT(Prune(PosixFileSystem(), root(), {.keep = 1}), ElementsAre("s1"));
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "root/s3/manifest.json"));
  ExpectResumed(2, {});
}

}  // namespace
}  // namespace muonstore
