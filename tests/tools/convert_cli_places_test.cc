// What ckpt-convert puts where, and what it leaves alone.
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/file_system.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/scratch.h"
#include "tests/tools/cli.h"
#include "tests/tools/convert_cli_fixture.h"

namespace muonstore::testutil {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

namespace stdfs = std::filesystem;

TEST_F(ConvertCliTest, ALinkToNothingIsNoRoot) {
  stdfs::create_symlink("nowhere", scratch_ / "link");
  for (const std::string below : {"link", "link/sub"}) {
    const ProcessResult result =
        RunConvert({source_, Out(below), "--to", "native"});
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_THAT(result.err, HasSubstr("is a link to what does not exist"));
  }
  EXPECT_FALSE(stdfs::exists(scratch_ / "nowhere"));
}

TEST_F(ConvertCliTest, AnEmptyLatestCountsAsAbsent) {
  stdfs::create_directories(Out());
  WriteBytes(scratch_ / "out/latest", "");
  ASSERT_EQ(RunConvert({source_, Out(), "--to", "native"}).exit_code, 0);
  EXPECT_EQ(ReadBytes(scratch_ / "out/latest"), "step5");
}

// A fingerprint of the replaced tag would belong to another state.
TEST_F(ConvertCliTest, AnOverwriteTakesTheOldTagsFingerprintAway) {
  const stdfs::path fingerprint = scratch_ / "out/step5.fingerprint.json";
  for (const std::string format : {"native", "safetensors"}) {
    ConvertJson({source_, Out(), "--to", "deepspeed", "--overwrite"});
    ASSERT_TRUE(stdfs::exists(fingerprint));
    ConvertJson({source_, Out(), "--to", format, "--overwrite", "--dry-run"});
    EXPECT_TRUE(stdfs::exists(fingerprint));
    ConvertJson({source_, Out(), "--to", format, "--overwrite"});
    EXPECT_FALSE(stdfs::exists(fingerprint)) << format;
    ASSERT_GT(stdfs::remove_all(scratch_ / "out"), 0U);
  }
}

TEST_F(ConvertCliTest, AnExistingTagStaysWithoutOverwrite) {
  ASSERT_EQ(RunConvert({source_, Out(), "--to", "native"}).exit_code, 0);
  ExpectRefused({source_, Out(), "--to", "native"}, 2, "--overwrite");
  EXPECT_EQ(RunConvert({source_, Out(), "--to", "native", "--overwrite",
                        "--world-size", "4"})
                .exit_code,
            0);
  EXPECT_EQ(InspectJson({Out()})["num_ranks"], 4);
}

TEST_F(ConvertCliTest, OtherTagsAndLatestStay) {
  const std::string twotags = CheckpointRoot("s2-ws2-bf16-none-twotags");
  ASSERT_EQ(RunConvert({twotags, Out(), "--to", "native", "--tag", "step5"})
                .exit_code,
            0);
  EXPECT_EQ(ReadBytes(scratch_ / "out/latest"), "step5");
  const auto before = Snapshot(scratch_ / "out/step5");
  ASSERT_EQ(RunConvert({twotags, Out(), "--to", "native"}).exit_code, 0);
  EXPECT_EQ(ReadBytes(scratch_ / "out/latest"), "step5");
  EXPECT_EQ(Snapshot(scratch_ / "out/step5"), before);
  ASSERT_EQ(RunConvert({twotags, Out(), "--to", "native", "--out-tag", "new",
                        "--set-latest"})
                .exit_code,
            0);
  EXPECT_EQ(ReadBytes(scratch_ / "out/latest"), "new");
  EXPECT_EQ(Inspect({"diff", twotags, Out()}).exit_code, 0);
}

TEST_F(ConvertCliTest, TheSourceIsNeverInTheWay) {
  const std::string root = scratch_.Copy(source_, "root").string();
  ExpectRefused({root, root, "--to", "native", "--overwrite"}, 2,
                "is the source itself");
  ExpectRefused({root, root + "/step5", "--to", "native"}, 2,
                "inside the source");
  ExpectRefused({root, root + "/deep/er", "--to", "native"}, 2,
                "inside the source's root");
  // The target would replace the folder that holds the source.
  ExpectRefused({root, scratch_.path().string(), "--to", "native", "--out-tag",
                 "root", "--overwrite"},
                2, "holds the source");
  // By another name.
  stdfs::create_directory_symlink(root, scratch_ / "link");
  ExpectRefused({root, Out("link"), "--to", "native", "--overwrite"}, 2,
                "is the source itself");
  // The root itself may take another tag.
  EXPECT_EQ(
      RunConvert({root, root, "--to", "native", "--out-tag", "x"}).exit_code,
      0);
  EXPECT_EQ(ReadBytes(scratch_ / "root/latest"), "step5");
}

TEST_F(ConvertCliTest, FilesBesideAreListedOrCarried) {
  const auto root = scratch_.Copy(source_, "root");
  WriteBytes(root / "config.json", "{}");
  WriteBytes(root / "zero_to_fp32.py", "print()");
  ProcessResult result = RunConvert({root.string(), Out(), "--to", "native"});
  EXPECT_THAT(result.out,
              HasSubstr("config.json, zero_to_fp32.py: not copied"));
  EXPECT_FALSE(stdfs::exists(scratch_ / "out/config.json"));
  WriteBytes(scratch_ / "out/config.json", "mine");
  result = RunConvert(
      {root.string(), Out(), "--to", "native", "--overwrite", "--carry-files"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(ReadBytes(scratch_ / "out/config.json"), "mine");
  EXPECT_EQ(ReadBytes(scratch_ / "out/zero_to_fp32.py"), "print()");
}

// A tag of DeepSpeed's that goes takes its own copy with it.
TEST_F(ConvertCliTest, WhatIsInATagIsCarriedOverATagThatHasItToo) {
  const auto root = scratch_.Copy(source_, "root");
  for (const std::string text : {"first", "second"}) {
    WriteBytes(root / "step5/notes.txt", text);
    const auto done = ConvertJson(
        {root.string(), Out(), "--stage", "1", "--overwrite", "--carry-files"});
    EXPECT_EQ(done["carried"], nlohmann::json({"step5/notes.txt"}));
    EXPECT_EQ(ReadBytes(scratch_ / "out/step5/notes.txt"), text);
  }
}

// A native tag is written in its place, and what is not its own stays.
TEST_F(ConvertCliTest, WhatANativeTagHasStaysAndIsSaid) {
  const auto root = scratch_.Copy(source_, "root");
  WriteBytes(root / "step5/notes.txt", "first");
  const std::vector<std::string> words = {
      root.string(), Out(), "--to", "native", "--overwrite", "--carry-files"};
  EXPECT_EQ(RunConvert(words).exit_code, 0);
  WriteBytes(root / "step5/notes.txt", "second");
  EXPECT_THAT(RunConvert(words).out,
              HasSubstr("step5/notes.txt: there already"));
  EXPECT_EQ(ReadBytes(scratch_ / "out/step5/notes.txt"), "first");
}

// Whatever a run left beside its tags and in them.
TEST_F(ConvertCliTest, FoldersLinksAndHiddenFilesAreCarriedToo) {
  const auto root = scratch_.Copy(source_, "root");
  stdfs::create_directories(root / "logs/deep");
  WriteBytes(root / "logs/deep/a.txt", "a");
  WriteBytes(root / ".hidden", "h");
  WriteBytes(root / "run.sh", "#!/bin/sh");
  stdfs::permissions(root / "run.sh", stdfs::perms::owner_exec,
                     stdfs::perm_options::add);
  stdfs::create_symlink("logs/deep", root / "link");
  stdfs::create_symlink("nowhere", root / "dangling");
  WriteBytes(root / "step5/notes.txt", "mine");
  scratch_.Copy(root / "step5", "root/other_tag");
  const auto listed = ConvertJson({root.string(), Out("a"), "--dry-run"});
  EXPECT_EQ(listed["beside"],
            nlohmann::json({".hidden", "dangling", "link", "logs/", "run.sh",
                            "step5/notes.txt"}));
  for (const std::string format : {"native", "deepspeed", "safetensors"}) {
    SCOPED_TRACE(format);
    const stdfs::path out = scratch_ / format;
    ConvertJson({root.string(), out.string(), "--to", format, "--out-tag", "t",
                 "--carry-files"});
    EXPECT_EQ(ReadBytes(out / "logs/deep/a.txt"), "a");
    EXPECT_EQ(ReadBytes(out / ".hidden"), "h");
    EXPECT_EQ(stdfs::read_symlink(out / "link"), "logs/deep");
    EXPECT_EQ(stdfs::read_symlink(out / "dangling"), "nowhere");
    EXPECT_EQ(ReadBytes(out / "t/notes.txt"), "mine");
    EXPECT_NE(
        stdfs::status(out / "run.sh").permissions() & stdfs::perms::owner_exec,
        stdfs::perms::none);
    EXPECT_FALSE(stdfs::exists(out / "other_tag"));
    EXPECT_FALSE(stdfs::exists(out / "..carried.muonstore-partial"));
  }
}

// What no copy can be made of is a loss with its name, at any depth.
TEST_F(ConvertCliTest, PipesAreListedAndNeedLeaveToStayBehind) {
  const auto root = scratch_.Copy(source_, "root");
  stdfs::create_directories(root / "logs/deep");
  WriteBytes(root / "logs/deep/a.txt", "a");
  ASSERT_EQ(::mkfifo((root / "logs/deep/pipe").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((root / "step5/control").c_str(), 0600), 0);
  // A link is copied as one, whatever it leads to.
  stdfs::create_symlink("/dev/null", root / "null");
  const std::vector<std::string> line = {root.string(), Out(), "--to",
                                         "native"};
  auto dry = line;
  dry.emplace_back("--dry-run");
  EXPECT_THAT(ConvertJson(dry)["losses"], IsEmpty()) << "nothing is copied";
  auto carry = line;
  carry.emplace_back("--carry-files");
  const ProcessResult refused = RunConvert(carry);
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("logs/deep/pipe: a pipe, socket or device"),
                    HasSubstr("step5/control: a pipe, socket or device"),
                    HasSubstr("--allow-loss special_files")));
  EXPECT_FALSE(stdfs::exists(scratch_ / "out/step5"));
  carry.insert(carry.end(), {"--allow-loss", "special_files"});
  const auto json = ConvertJson(carry);
  EXPECT_EQ(json["losses"].size(), 2U);
  EXPECT_EQ(ReadBytes(scratch_ / "out/logs/deep/a.txt"), "a");
  EXPECT_FALSE(stdfs::exists(scratch_ / "out/logs/deep/pipe"));
  EXPECT_EQ(stdfs::read_symlink(scratch_ / "out/null"), "/dev/null");
}

TEST_F(ConvertCliTest, ADryRunSaysWhatWouldBeCarried) {
  const auto root = scratch_.Copy(source_, "root");
  WriteBytes(root / "note.txt", "n");
  WriteBytes(root / "run.sh", "r");
  ASSERT_EQ(::mkfifo((root / "pipe").c_str(), 0600), 0);
  const std::vector<std::string> line = {root.string(),   Out(),
                                         "--carry-files", "--allow-loss",
                                         "special_files", "--dry-run"};
  const std::string fresh = RunConvert(line).out;
  EXPECT_THAT(fresh, HasSubstr("note.txt, run.sh: would be copied\n"));
  EXPECT_THAT(fresh, testing::Not(HasSubstr("there already")));
  stdfs::create_directories(Out());
  WriteBytes(scratch_ / "out/note.txt", "mine");
  EXPECT_THAT(RunConvert(line).out,
              AllOf(HasSubstr("  run.sh: would be copied\n"),
                    HasSubstr("  note.txt: there already\n")));
}

TEST_F(ConvertCliTest, AFileInThePlaceOfTheFingerprintStays) {
  stdfs::create_directories(Out());
  WriteBytes(scratch_ / "out/step5.fingerprint.json", "mine");
  ExpectRefused({source_, Out()}, 2, "--overwrite allows that");
  EXPECT_EQ(ReadBytes(scratch_ / "out/step5.fingerprint.json"), "mine");
  EXPECT_EQ(RunConvert({source_, Out(), "--overwrite"}).exit_code, 0);
}

TEST_F(ConvertCliTest, TwoConversionsIntoOneRootAreRefused) {
  ASSERT_EQ(RunConvert({source_, Out(), "--to", "native"}).exit_code, 0);
  const auto lock = PosixFileSystem()->TryLock(Out() + "/.muonstore-lock");
  ASSERT_NE(lock, nullptr);
  const ProcessResult result =
      RunConvert({source_, Out(), "--to", "native", "--out-tag", "other"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("another process writes"));
}

TEST_F(ConvertCliTest, ModesFollowTheUmask) {
  const mode_t before = ::umask(027);
  const int exit_code =
      RunConvert({source_, Out(), "--to", "native"}).exit_code;
  ::umask(before);
  ASSERT_EQ(exit_code, 0);
  for (const auto& entry :
       stdfs::recursive_directory_iterator(scratch_ / "out")) {
    const auto mode = static_cast<unsigned>(entry.status().permissions());
    EXPECT_EQ(mode, entry.is_directory() ? 0750U : 0640U) << entry.path();
  }
}

}  // namespace
}  // namespace muonstore::testutil
