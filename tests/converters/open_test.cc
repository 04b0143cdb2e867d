// Which checkpoint a path means, and what is said where it means none.

#include "muonstore/open.h"

#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "converters/locate.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/forwarding_file_system.h"
#include "tests/testutil/scratch.h"

namespace muonstore {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testutil::Scratch;
using testutil::WriteBytes;

fs::path Root(const Scratch& scratch, std::string_view as = "ckpt") {
  return scratch.Copy(
      testutil::FindDeepSpeedCase("s2-ws2-bf16-none-twotags").folder / "ckpt",
      as);
}

std::string OpenedTag(const fs::path& path, const std::string& tag = "") {
  const auto checkpoint =
      OpenCheckpoint(PosixFileSystem(), path.string(), {.tag = tag});
  EXPECT_TRUE(checkpoint->info().step.has_value());
  return checkpoint->info().tag;
}

Error OpenError(const fs::path& path, const std::string& tag = "") {
  try {
    OpenCheckpoint(PosixFileSystem(), path.string(), {.tag = tag});
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << path << " was opened";
  return Error(ErrorCode::kInternal, "");
}

TEST(OpenTest, LatestIsTextOrTextWithANewlineOrALink) {
  const Scratch scratch;
  const fs::path root = Root(scratch);
  WriteBytes(root / "latest", "step5");
  EXPECT_EQ(OpenedTag(root), "step5");
  WriteBytes(root / "latest", "step8\r\n");
  EXPECT_EQ(OpenedTag(root), "step8");
  fs::remove(root / "latest");
  fs::create_symlink("step5", root / "latest");
  EXPECT_EQ(OpenedTag(root), "step5");
  EXPECT_EQ(OpenedTag(root.string() + "/"), "step5");
  fs::remove(root / "latest");
  fs::create_symlink(root / "step8", root / "latest");
  EXPECT_EQ(OpenedTag(root), "step8");
}

TEST(OpenTest, LatestMayBeWrittenAsAPath) {
  const Scratch scratch;
  const fs::path root = Root(scratch);
  for (const char* text : {"step5/", "./step5", "./step5/\n"}) {
    WriteBytes(root / "latest", text);
    EXPECT_EQ(OpenedTag(root), "step5") << text;
    EXPECT_EQ(LatestOf(*PosixFileSystem(), root.string()), "step5") << text;
  }
}

// A tag of the same name lies in the root.
TEST(OpenTest, ALatestLinkToAnotherPlaceIsRefused) {
  const Scratch scratch;
  const fs::path root = Root(scratch);
  fs::create_directories(scratch / "other");
  fs::copy(root / "step8", scratch / "other/step5",
           fs::copy_options::recursive);
  for (const fs::path& target :
       {fs::path("../other/step5"), scratch / "other/step5"}) {
    fs::remove(root / "latest");
    fs::create_symlink(target, root / "latest");
    const Error error = OpenError(root);
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    EXPECT_THAT(error.what(), HasSubstr("leads out of the folder of tags"));
    EXPECT_THAT(error.what(), HasSubstr("step5, step8"));
  }
}

class WithoutRight final : public testutil::ForwardingFileSystem {
 public:
  WithoutRight() : ForwardingFileSystem(PosixFileSystem()) {}
  bool MayList(const std::string& path) override {
    return !path.ends_with("lost+found");
  }
  std::vector<std::string> List(const std::string& path) override {
    if (MayList(path)) return ForwardingFileSystem::List(path);
    throw Error(ErrorCode::kUnavailable, "no right", {.file = path});
  }
};

TEST(OpenTest, AFolderThatMayNotBeReadIsNoTag) {
  const Scratch scratch;
  const fs::path root = Root(scratch);
  fs::create_directory(root / "lost+found");
  const auto limited = std::make_shared<WithoutRight>();
  EXPECT_EQ(TagsOf(*limited, root.string()),
            (std::vector<std::string>{"step5", "step8"}));
  EXPECT_EQ(OpenCheckpoint(limited, scratch.path().string(), {})->info().tag,
            OpenedTag(root));
}

TEST(OpenTest, TheTagAskedForIsTheTagOpened) {
  const Scratch scratch;
  const fs::path root = Root(scratch);
  EXPECT_EQ(OpenedTag(root, "step5"), "step5");
  EXPECT_EQ(OpenedTag(root, "step8"), "step8");
  EXPECT_EQ(OpenedTag(root / "step5"), "step5");
  EXPECT_EQ(OpenedTag((root / "step5").string() + "/"), "step5");
  EXPECT_EQ(OpenedTag(root / "step5", "step5"), "step5");
  EXPECT_EQ(OpenError(root / "step5", "step8").code(),
            ErrorCode::kInvalidArgument);
  const Error error = OpenError(root, "step9");
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.what(), HasSubstr("step5, step8"));
  EXPECT_THAT(OpenError(root, "../ckpt/step5").what(), HasSubstr("leaves"));
}

TEST(OpenTest, WithoutLatestTheOnlyTagIsTaken) {
  const Scratch scratch;
  const fs::path root = Root(scratch);
  fs::remove(root / "latest");
  const Error error = OpenError(root);
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.what(), HasSubstr("step5, step8"));
  fs::remove_all(root / "step5");
  EXPECT_EQ(OpenedTag(root), "step8");
}

TEST(OpenTest, ALatestThatNamesNothingIsAnErrorThatListsTheTags) {
  const Scratch scratch;
  const fs::path root = Root(scratch);
  WriteBytes(root / "latest", "step11");
  EXPECT_THAT(OpenError(root).what(), HasSubstr("step5, step8"));
  WriteBytes(root / "latest", "../../etc");
  EXPECT_THAT(OpenError(root).what(), HasSubstr("leaves the root"));
  WriteBytes(root / "latest", std::string(5000, 'x'));
  EXPECT_EQ(OpenError(root).code(), ErrorCode::kDataLoss);
  WriteBytes(root / "latest", "");
  EXPECT_THAT(OpenError(root).what(), HasSubstr("step5, step8"));
}

// Each of these stood for "no latest", and the only tag was opened.
TEST(OpenTest, ALatestThatIsNoNameIsAnErrorAndAFindingOfTheList) {
  const Scratch scratch;
  const fs::path root = Root(scratch);
  fs::remove_all(root / "step5");
  const fs::path latest = root / "latest";
  const auto expect_unusable = [&](const std::string& what) {
    const Error error = OpenError(root);
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << what;
    EXPECT_THAT(error.what(), HasSubstr("--tag: step8")) << what;
    EXPECT_THAT(error.place().file, EndsWith("latest")) << what;
    EXPECT_EQ(OpenedTag(root, "step8"), "step8") << what;
    const RootListing listing = ListTags(PosixFileSystem(), root.string());
    ASSERT_EQ(listing.findings.size(), 1U) << what;
    EXPECT_EQ(listing.findings[0].code, "latest_unusable");
    EXPECT_EQ(listing.findings[0].severity, Finding::Severity::kWarning);
    EXPECT_EQ(listing.tags.size(), 1U);
  };
  for (const std::string& text :
       {std::string(), std::string(" \n"), std::string("step8\0", 6),
        std::string("\0step8", 6)}) {
    WriteBytes(latest, text);
    expect_unusable("text of " + std::to_string(text.size()) + " bytes");
  }
  fs::remove(latest);
  fs::create_directory(latest);
  expect_unusable("a directory");
  fs::remove(latest);
  ASSERT_EQ(::mkfifo(latest.c_str(), 0600), 0);
  expect_unusable("a FIFO");
}

TEST(OpenTest, ATagMayBeNamedLatest) {
  const Scratch scratch;
  const fs::path root = Root(scratch);
  fs::remove(root / "latest");
  fs::remove_all(root / "step5");
  fs::rename(root / "step8", root / "latest");
  EXPECT_EQ(OpenedTag(root), "latest");
  const RootListing listing = ListTags(PosixFileSystem(), root.string());
  ASSERT_EQ(listing.tags.size(), 1U);
  EXPECT_EQ(listing.tags[0].tag, "latest");
  EXPECT_TRUE(listing.findings.empty());
}

TEST(OpenTest, ATagWithANulIsNoTag) {
  const Scratch scratch;
  const fs::path root = Root(scratch);
  EXPECT_EQ(OpenError(root, std::string("step5\0x", 7)).code(),
            ErrorCode::kInvalidArgument);
}

TEST(OpenTest, RunFoldersThatHoldOneCheckpoint) {
  const Scratch hugging_face;
  Root(hugging_face, "run/checkpoint-500");
  WriteBytes(hugging_face / "run/checkpoint-500/trainer_state.json", "{}");
  WriteBytes(hugging_face / "run/config.json", "{}");
  EXPECT_EQ(OpenedTag(hugging_face / "run"), "step8");
  EXPECT_EQ(OpenedTag(hugging_face / "run/checkpoint-500", "step5"), "step5");

  const Scratch lightning;
  const fs::path root = Root(lightning, "logs/version_0/checkpoints/last.ckpt");
  fs::remove_all(root / "step5");
  fs::rename(root / "step8", root / "checkpoint");
  WriteBytes(root / "latest", "checkpoint");
  EXPECT_EQ(OpenedTag(lightning / "logs"), "checkpoint");

  Root(hugging_face, "run/checkpoint-1000");
  const Error error = OpenError(hugging_face / "run");
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.what(), HasSubstr("checkpoint-500"));
  EXPECT_THAT(error.what(), HasSubstr("checkpoint-1000"));
}

TEST(OpenTest, WhatIsNoCheckpointIsSaidByName) {
  const Scratch scratch;
  EXPECT_EQ(OpenError(scratch / "nothing").code(), ErrorCode::kNotFound);
  fs::create_directories(scratch / "empty");
  EXPECT_EQ(OpenError(scratch / "empty").code(), ErrorCode::kUnsupported);
  WriteBytes(scratch / "dcp/.metadata", "x");
  WriteBytes(scratch / "dcp/__0_0.distcp", "x");
  EXPECT_THAT(OpenError(scratch / "dcp").what(), HasSubstr("DCP"));
  WriteBytes(scratch / "st/model.safetensors", "x");
  EXPECT_THAT(OpenError(scratch / "st").what(), HasSubstr("safetensors"));
  EXPECT_THAT(OpenError(scratch / "st/model.safetensors").what(),
              HasSubstr("safetensors"));
  WriteBytes(scratch / "universal/zero/optimizer_state.pt", "x");
  EXPECT_THAT(OpenError(scratch / "universal").what(), HasSubstr("universal"));
  WriteBytes(scratch / "text.pt", "hello, this is text\n");
  EXPECT_EQ(OpenError(scratch / "text.pt").code(), ErrorCode::kDataLoss);
  WriteBytes(scratch / "empty.pt", "");
  EXPECT_THAT(OpenError(scratch / "empty.pt").what(), HasSubstr("empty"));
}

TEST(OpenTest, StageZeroIsUnsupportedByName) {
  const Scratch scratch;
  const fs::path root = Root(scratch);
  for (int rank = 0; rank < 2; ++rank) {
    fs::remove(root / "step5" /
               ("bf16_zero_pp_rank_" + std::to_string(rank) +
                "_mp_rank_00_optim_states.pt"));
  }
  const Error error = OpenError(root, "step5");
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.what(), HasSubstr("stage 0"));
}

TEST(OpenTest, ASingleTorchFileIsItsTensors) {
  const auto path =
      testutil::FindDeepSpeedCase("s2-ws2-bf16-none-base").folder / "ckpt" /
      "step5" / "mp_rank_00_model_states.pt";
  const auto file = OpenCheckpoint(PosixFileSystem(), path.string());
  EXPECT_EQ(file->info().format, "torch file");
  const auto whole =
      OpenCheckpoint(PosixFileSystem(), path.parent_path().string());
  const size_t a =
      FindTensor(*file, {"module.odd.weight", StateKind(kWeight)}).value();
  const size_t b =
      FindTensor(*whole, {"odd.weight", StateKind(kWeight)}).value();
  EXPECT_EQ(ReadTensorF32(*file, a, {0, 91}),
            ReadTensorF32(*whole, b, {0, 91}));

  const auto optimizer = OpenCheckpoint(
      PosixFileSystem(),
      (path.parent_path() / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt")
          .string());
  std::vector<std::string> kinds;
  for (const CheckpointTensor& tensor : optimizer->tensors()) {
    kinds.push_back(tensor.key.kind);
  }
  EXPECT_THAT(kinds, testing::IsSupersetOf(
                         {"momentum", "exp_avg", "exp_avg_sq", "weight"}));
}

TEST(ListTest, TagsInOrderOfTheirSteps) {
  const Scratch scratch;
  const fs::path root = Root(scratch);
  fs::rename(root / "step5", root / "z-older");
  WriteBytes(root / "latest", "step8\n");
  const RootListing listing = ListTags(PosixFileSystem(), root.string());
  ASSERT_EQ(listing.tags.size(), 2U);
  EXPECT_EQ(listing.tags[0].tag, "z-older");
  EXPECT_EQ(listing.tags[0].step, 5);
  EXPECT_FALSE(listing.tags[0].is_latest);
  EXPECT_TRUE(listing.tags[0].complete);
  EXPECT_EQ(listing.tags[1].stage, 2);
  EXPECT_EQ(listing.tags[1].num_ranks, 2);
  EXPECT_TRUE(listing.tags[1].is_latest);
  EXPECT_EQ(listing.latest, "step8");
  EXPECT_TRUE(listing.findings.empty());
}

TEST(ListTest, IncompleteTagsSayWhatIsMissing) {
  const Scratch scratch;
  const fs::path root = Root(scratch);
  fs::remove(root / "step5/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt");
  WriteBytes(root / "step8/mp_rank_00_model_states.pt", "cut");
  WriteBytes(root / "latest", "gone");
  const RootListing listing = ListTags(PosixFileSystem(), root.string());
  ASSERT_EQ(listing.tags.size(), 2U);
  for (const TagListing& tag : listing.tags) {
    EXPECT_FALSE(tag.complete) << tag.tag;
    EXPECT_FALSE(tag.missing.empty()) << tag.tag;
  }
  ASSERT_EQ(listing.findings.size(), 1U);
  EXPECT_EQ(listing.findings[0].code, "latest_names_no_tag");
}

TEST(VerifyTest, ReportsPathTagAndSizes) {
  const Scratch scratch;
  const fs::path root = Root(scratch);
  uint64_t last = 0;
  const VerifyReport report = VerifyCheckpoint(
      PosixFileSystem(), root.string(),
      {.tag = "step5", .progress = [&](uint64_t done, uint64_t total) {
         EXPECT_LE(done, total);
         EXPECT_GE(done, last);
         last = done;
       }});
  EXPECT_TRUE(report.whole());
  EXPECT_THAT(report.path, EndsWith("step5"));
  EXPECT_EQ(report.num_files, 3);
  EXPECT_EQ(report.size_bytes, last);
}

TEST(VerifyTest, ASingleDamagedFile) {
  const Scratch scratch;
  const fs::path root = Root(scratch);
  const fs::path file = root / "step5/mp_rank_00_model_states.pt";
  EXPECT_TRUE(VerifyCheckpoint(PosixFileSystem(), file.string()).whole());
  std::string bytes = testutil::ReadBytes(file);
  bytes.resize(bytes.size() - 100);
  WriteBytes(file, bytes);
  const VerifyReport report =
      VerifyCheckpoint(PosixFileSystem(), file.string());
  ASSERT_FALSE(report.whole());
  EXPECT_THAT(report.findings[0].ToString(),
              HasSubstr("mp_rank_00_model_states.pt"));
}

}  // namespace
}  // namespace muonstore
