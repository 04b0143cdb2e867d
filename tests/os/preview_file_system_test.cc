#include "src/os/preview_file_system.h"

#include <filesystem>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/testutil/scratch.h"

namespace muonstore::os {
namespace {

using testing::ElementsAre;

class PreviewTest : public testing::Test {
 protected:
  PreviewTest() {
    std::filesystem::create_directories(scratch_ / "staged/sub");
    std::filesystem::create_directories(scratch_ / "final");
    testutil::WriteBytes(scratch_ / "staged/new", "new");
    testutil::WriteBytes(scratch_ / "staged/sub/deep", "deep");
    testutil::WriteBytes(scratch_ / "final/old", "old");
    std::filesystem::create_symlink("new", scratch_ / "staged/link");
  }
  std::string Path(const std::string& name) const {
    return (scratch_ / name).string();
  }

  testutil::Scratch scratch_;
  std::shared_ptr<FileSystem> preview_ =
      PreviewFileSystem(PosixFileSystem(), Path("final"),
                        {{"a", Path("staged/new")},
                         {"l", Path("staged/link")},
                         {"s", Path("staged/sub")}});
};

TEST_F(PreviewTest, TheDirectoryHoldsWhatIsStaged) {
  EXPECT_THAT(preview_->List(Path("final")), ElementsAre("a", "l", "s"));
  EXPECT_EQ(ReadSmallFile(*preview_, Path("final/a"), 10), "new");
  EXPECT_EQ(ReadSmallFile(*preview_, Path("final/s/deep"), 10), "deep");
  EXPECT_THAT(preview_->List(Path("final/s")), ElementsAre("deep"));
  EXPECT_EQ(preview_->Stat(Path("final/a"))->size_bytes, 3U);
  EXPECT_EQ(preview_->ReadLink(Path("final/l")), "new");
}

TEST_F(PreviewTest, WhatWasInItIsGone) {
  EXPECT_FALSE(preview_->Stat(Path("final/old")));
  EXPECT_FALSE(preview_->ReadLink(Path("final/old")));
  EXPECT_EQ(preview_->Stat(Path("final"))->type, FileType::kDirectory);
  EXPECT_FALSE(preview_->ReadLink(Path("final")));
}

TEST_F(PreviewTest, AllElseIsAsItIs) {
  EXPECT_EQ(ReadSmallFile(*preview_, Path("staged/new"), 10), "new");
  EXPECT_FALSE(preview_->Stat(Path("absent")));
}

TEST_F(PreviewTest, IsNotWritten) {
  EXPECT_THROW(preview_->CreateFile(Path("final/b")), Error);
  EXPECT_THROW(preview_->Rename(Path("staged/new"), Path("b")), Error);
  EXPECT_THROW(preview_->Remove(Path("staged/new")), Error);
  EXPECT_THROW(preview_->CreateDirectories(Path("final/d")), Error);
  EXPECT_THROW(preview_->RemoveDirectory(Path("staged/sub")), Error);
  EXPECT_THROW(preview_->Exchange(Path("final"), Path("staged")), Error);
  EXPECT_THROW(preview_->TryLock(Path("lock")), Error);
  EXPECT_THROW(preview_->SyncDirectory(Path("final")), Error);
}

}  // namespace
}  // namespace muonstore::os
