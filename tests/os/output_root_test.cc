#include "src/os/output_root.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "muonstore/file_system.h"
#include "tests/testutil/forwarding_file_system.h"
#include "tests/testutil/scratch.h"

namespace muonstore::os {
namespace {

namespace stdfs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testutil::ForwardingFileSystem;
using testutil::ReadBytes;
using testutil::Scratch;
using testutil::WriteBytes;

// As network file systems: no exchange; a rename may fail.
class NoExchange : public ForwardingFileSystem {
 public:
  NoExchange() : ForwardingFileSystem(PosixFileSystem()) {}

  bool Exchange(const std::string& /*a*/, const std::string& /*b*/) override {
    return false;
  }
  void Rename(const std::string& from, const std::string& to) override {
    if (num_renames++ == fail_at) {
      throw Error(ErrorCode::kUnavailable, "the rename failed");
    }
    ForwardingFileSystem::Rename(from, to);
  }

  int num_renames = 0;
  int fail_at = -1;
};

void WriteFile(FileSystem& fs, const std::string& path, std::string_view text) {
  const auto file = fs.CreateFile(path);
  file->WriteAt(0, std::as_bytes(std::span(text)));
  file->Sync();
  file->Close();
}

class OutputRootTest : public testing::Test {
 protected:
  std::string Path(std::string_view name) const {
    return (scratch_ / name).string();
  }
  std::vector<std::string> List() { return fs_->List(Path("root")); }

  // A tag with one file.
  void Write(std::shared_ptr<FileSystem> fs, const std::string& text,
             bool overwrite) {
    OutputRoot root(std::move(fs), Path("root"));
    StagedDirectory staged(root, "step1", overwrite);
    WriteFile(root.fs(), staged.path() + "/f", text);
    staged.Commit();
  }

  Scratch scratch_;
  std::shared_ptr<FileSystem> fs_ = PosixFileSystem();
};

TEST_F(OutputRootTest, AppearsAtCommitAndLeavesNothingElse) {
  {
    OutputRoot root(fs_, Path("root/"));
    StagedDirectory staged(root, "step1", false);
    EXPECT_EQ(staged.final_path(), Path("root/step1"));
    fs_->CreateDirectories(staged.path() + "/sub");
    WriteFile(*fs_, staged.path() + "/sub/f", "new");
    EXPECT_FALSE(fs_->Stat(Path("root/step1")));
    staged.Commit();
    EXPECT_EQ(ReadBytes(scratch_ / "root/step1/sub/f"), "new");
  }
  EXPECT_THAT(List(), ElementsAre("step1"));
}

TEST_F(OutputRootTest, WithoutCommitTheRootThatItMadeGoesToo) {
  {
    OutputRoot root(fs_, Path("a/b/root"));
    StagedDirectory staged(root, "step1", false);
    WriteFile(*fs_, staged.path() + "/f", "x");
  }
  EXPECT_FALSE(fs_->Stat(Path("a")));
}

TEST_F(OutputRootTest, ARootThatWasThereStays) {
  stdfs::create_directory(scratch_ / "root");
  { OutputRoot root(fs_, Path("root")); }
  EXPECT_THAT(List(), IsEmpty());
}

TEST_F(OutputRootTest, OverwritesOnlyWhenAsked) {
  Write(fs_, "old", false);
  try {
    Write(fs_, "new", false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("--overwrite"));
  }
  EXPECT_EQ(ReadBytes(scratch_ / "root/step1/f"), "old");
  Write(fs_, "new", true);
  EXPECT_EQ(ReadBytes(scratch_ / "root/step1/f"), "new");
  EXPECT_THAT(List(), ElementsAre("step1"));
}

TEST_F(OutputRootTest, OverwritesWithoutAnExchange) {
  Write(fs_, "old", false);
  const auto fs = std::make_shared<NoExchange>();
  Write(fs, "new", true);
  EXPECT_EQ(ReadBytes(scratch_ / "root/step1/f"), "new");
  EXPECT_THAT(List(), ElementsAre("step1"));
}

TEST_F(OutputRootTest, AFailedMoveInPutsTheOldTagBack) {
  Write(fs_, "old", false);
  const auto fs = std::make_shared<NoExchange>();
  fs->fail_at = 1;
  EXPECT_THROW(Write(fs, "new", true), Error);
  EXPECT_EQ(ReadBytes(scratch_ / "root/step1/f"), "old");
  EXPECT_THAT(List(), ElementsAre("step1"));
}

TEST_F(OutputRootTest, WhatADeadWriterLeftIsRemovedOrPutBack) {
  stdfs::create_directories(scratch_ / "root/.a.muonstore-partial/deep");
  WriteBytes(scratch_ / "root/.a.muonstore-partial/deep/f", "half");
  stdfs::create_directories(scratch_ / "root/.b.muonstore-aside");
  WriteBytes(scratch_ / "root/.b.muonstore-aside/f", "only copy");
  stdfs::create_directories(scratch_ / "root/c");
  stdfs::create_directories(scratch_ / "root/.c.muonstore-aside");
  stdfs::create_directories(scratch_ / "root/.other");
  WriteBytes(scratch_ / "root/.latest.muonstore-partial", "half");
  { OutputRoot root(fs_, Path("root")); }
  EXPECT_THAT(List(), ElementsAre(".other", "b", "c"));
  EXPECT_EQ(ReadBytes(scratch_ / "root/b/f"), "only copy");
}

TEST_F(OutputRootTest, LinksAreRemovedAndNotFollowed) {
  stdfs::create_directories(scratch_ / "precious");
  WriteBytes(scratch_ / "precious/f", "kept");
  stdfs::create_directories(scratch_ / "root/.a.muonstore-partial");
  stdfs::create_symlink(scratch_ / "precious",
                        scratch_ / "root/.a.muonstore-partial/link");
  { OutputRoot root(fs_, Path("root")); }
  EXPECT_THAT(List(), IsEmpty());
  EXPECT_EQ(ReadBytes(scratch_ / "precious/f"), "kept");
}

TEST_F(OutputRootTest, OneWriterAtATime) {
  std::optional<OutputRoot> first(std::in_place, fs_, Path("root"));
  try {
    OutputRoot second(fs_, Path("root"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_THAT(error.what(), HasSubstr("another process"));
  }
  first.reset();
  OutputRoot second(fs_, Path("root"));
}

TEST_F(OutputRootTest, ADeadWritersLockIsFree) {
  stdfs::create_directories(scratch_ / "root");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto lock = fs_->TryLock(Path("root/.muonstore-lock"));
    ::_exit(lock != nullptr ? 0 : 1);  // Without unlocking.
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(List(), ElementsAre(".muonstore-lock"));
  { OutputRoot root(fs_, Path("root")); }
  EXPECT_THAT(List(), IsEmpty());
}

TEST_F(OutputRootTest, LatestReplacesALinkAndNotItsTarget) {
  stdfs::create_directories(scratch_ / "root");
  WriteBytes(scratch_ / "elsewhere", "step9");
  stdfs::create_symlink(scratch_ / "elsewhere", scratch_ / "root/latest");
  OutputRoot root(fs_, Path("root"));
  StageLatest(root, "step1")->Commit();
  EXPECT_EQ(ReadBytes(scratch_ / "root/latest"), "step1");
  EXPECT_EQ(ReadBytes(scratch_ / "elsewhere"), "step9");
  StageLatest(root, "step2")->Commit();
  EXPECT_EQ(ReadBytes(scratch_ / "root/latest"), "step2");
}

TEST_F(OutputRootTest, AStagedFileAppearsAtCommit) {
  stdfs::create_directories(scratch_ / "root");
  WriteBytes(scratch_ / "root/f", "old");
  OutputRoot root(fs_, Path("root"));
  {
    StagedFile file(root, "f");
    file.Write(std::as_bytes(std::span("half", 4)));
  }
  EXPECT_EQ(ReadBytes(scratch_ / "root/f"), "old");
  StagedFile file(root, "f");
  file.Write(std::as_bytes(std::span("ne", 2)));
  file.Write(std::as_bytes(std::span("w", 1)));
  file.Finish();
  EXPECT_EQ(ReadBytes(scratch_ / "root/f"), "old");
  file.Commit();
  EXPECT_EQ(ReadBytes(scratch_ / "root/f"), "new");
  EXPECT_THAT(List(), ElementsAre(".muonstore-lock", "f"));
  stdfs::create_directories(scratch_ / "root/folder");
  EXPECT_THROW(StagedFile(root, "folder"), Error);
}

TEST_F(OutputRootTest, APreviewShowsTheStagedTag) {
  Write(fs_, "old", false);
  OutputRoot root(fs_, Path("root"));
  StagedDirectory staged(root, "step1", true);
  WriteFile(*fs_, staged.path() + "/f", "new");
  EXPECT_EQ(ReadSmallFile(*staged.Preview(), Path("root/step1/f"), 10), "new");
  EXPECT_EQ(ReadBytes(scratch_ / "root/step1/f"), "old");
}

TEST_F(OutputRootTest, RefusesNamesThatAreNoTag) {
  OutputRoot root(fs_, Path("root"));
  for (const char* tag :
       {"", ".", "..", "a/b", ".hidden", "latest", "x ", " x", "a\nb"}) {
    EXPECT_THROW(StagedDirectory(root, tag, true), Error) << tag;
  }
}

TEST_F(OutputRootTest, RefusesAFileInTheTagsPlace) {
  stdfs::create_directories(scratch_ / "root");
  WriteBytes(scratch_ / "root/step1", "a file");
  OutputRoot root(fs_, Path("root"));
  EXPECT_THROW(StagedDirectory(root, "step1", true), Error);
  EXPECT_EQ(ReadBytes(scratch_ / "root/step1"), "a file");
}

TEST_F(OutputRootTest, RefusesALinkInTheTagsPlace) {
  stdfs::create_directories(scratch_ / "root/step1");
  stdfs::create_directory_symlink("step1", scratch_ / "root/best");
  OutputRoot root(fs_, Path("root"));
  EXPECT_THROW(StagedDirectory(root, "best", true), Error);
  EXPECT_TRUE(stdfs::is_symlink(scratch_ / "root/best"));
}

TEST_F(OutputRootTest, WhatIsSetAsideComesBackUnlessItIsDropped) {
  OutputRoot root(fs_, Path("root"));
  WriteBytes(scratch_ / "root/f", "old");
  {
    const SetAside aside(root, "f");
    EXPECT_FALSE(stdfs::exists(scratch_ / "root/f"));
  }
  EXPECT_EQ(ReadBytes(scratch_ / "root/f"), "old");
  {
    SetAside aside(root, "f");
    aside.Drop();
  }
  EXPECT_FALSE(stdfs::exists(scratch_ / "root/f"));
  { const SetAside nothing(root, "f"); }
  EXPECT_FALSE(stdfs::exists(scratch_ / "root/f"));
  stdfs::create_directory(scratch_ / "root/f");
  EXPECT_THROW(SetAside(root, "f"), Error);
  EXPECT_TRUE(stdfs::exists(scratch_ / "root/f"));
}

class NoLocks final : public ForwardingFileSystem {
 public:
  NoLocks() : ForwardingFileSystem(PosixFileSystem()) {}
  std::unique_ptr<FileLock> TryLock(const std::string& path) override {
    throw Error(ErrorCode::kUnavailable, "no locks here", {.file = path});
  }
};

TEST_F(OutputRootTest, ARootThatCannotBeOpenedIsNotLeftBehind) {
  EXPECT_THROW(OutputRoot(std::make_shared<NoLocks>(), Path("a/b")), Error);
  EXPECT_FALSE(stdfs::exists(scratch_ / "a"));
}

TEST_F(OutputRootTest, AvailableBytesIsWhatStatvfsSays) {
  const uint64_t bytes = fs_->AvailableBytes(scratch_.path().string());
  const auto space = stdfs::space(scratch_.path());
  EXPECT_GT(bytes, 0U);
  EXPECT_LE(bytes, space.capacity);
  EXPECT_THROW(fs_->AvailableBytes(Path("absent")), Error);
}

}  // namespace
}  // namespace muonstore::os
