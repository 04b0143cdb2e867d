#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "muonstore/file_system.h"
#include "src/os/file_descriptor.h"
#include "tests/testutil/scratch.h"

namespace muonstore {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testutil::ReadBytes;
using testutil::Scratch;
using testutil::WriteBytes;

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// The code of the error that `call` throws.
template <typename Call>
ErrorCode CodeOf(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kInternal;
}

class PosixFileSystemTest : public testing::Test {
 protected:
  std::string Path(std::string_view name) const {
    return (scratch_ / name).string();
  }

  Scratch scratch_;
  std::shared_ptr<FileSystem> fs_ = PosixFileSystem();
};

TEST_F(PosixFileSystemTest, ReadsRangesExactly) {
  WriteBytes(scratch_ / "f", "0123456789");
  const auto file = fs_->OpenForRead(Path("f"));
  EXPECT_EQ(file->size_bytes(), 10U);
  EXPECT_EQ(file->path(), Path("f"));
  std::string out(4, '?');
  file->ReadAt(3, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out, "3456");
  file->ReadAt(10, {});  // Nothing of nothing is fine.
}

TEST_F(PosixFileSystemTest, AShortFileSaysWhereItEnds) {
  WriteBytes(scratch_ / "f", "0123456789");
  std::string out(8, '?');
  try {
    fs_->OpenForRead(Path("f"))->ReadAt(5,
                                        std::as_writable_bytes(std::span(out)));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    EXPECT_THAT(error.what(), HasSubstr("ends at byte 10"));
    EXPECT_EQ(error.place().file, Path("f"));
    EXPECT_EQ(error.place().offset_bytes, 5U);
  }
}

TEST_F(PosixFileSystemTest, MissingThingsAreNotFound) {
  EXPECT_EQ(CodeOf([&] { fs_->OpenForRead(Path("no")); }),
            ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf([&] { fs_->List(Path("no")); }), ErrorCode::kNotFound);
  EXPECT_FALSE(fs_->Stat(Path("no")).has_value());
  WriteBytes(scratch_ / "f", "x");
  EXPECT_FALSE(fs_->Stat(Path("f/below")).has_value());
}

TEST_F(PosixFileSystemTest, WhatIsNoFileIsNotOpened) {
  EXPECT_THROW(fs_->OpenForRead(scratch_.path().string()), Error);
  ASSERT_EQ(::mkfifo(Path("fifo").c_str(), 0600), 0);
  // Without a writer a plain open would wait for ever.
  EXPECT_EQ(CodeOf([&] { fs_->OpenForRead(Path("fifo")); }),
            ErrorCode::kUnavailable);
  EXPECT_EQ(fs_->Stat(Path("fifo"))->type, FileType::kOther);
}

TEST_F(PosixFileSystemTest, CreateIsExclusive) {
  const auto file = fs_->CreateFile(Path("f"));
  file->WriteAt(0, Bytes("hello"));
  file->WriteAt(8, Bytes("end"));
  file->Sync();
  file->Close();
  EXPECT_EQ(ReadBytes(scratch_ / "f"), std::string("hello\0\0\0end", 11));
  EXPECT_EQ(CodeOf([&] { fs_->CreateFile(Path("f")); }),
            ErrorCode::kInvalidArgument);
}

TEST_F(PosixFileSystemTest, ListIsSortedAndLinksAreRead) {
  for (const char* name : {"b", "a", "c10", "c2"}) {
    WriteBytes(scratch_ / name, name);
  }
  EXPECT_THAT(fs_->List(scratch_.path().string()),
              ElementsAre("a", "b", "c10", "c2"));
  fs::create_symlink("nowhere", scratch_ / "link");
  EXPECT_EQ(fs_->ReadLink(Path("link")), "nowhere");
  EXPECT_FALSE(fs_->Stat(Path("link")).has_value());
  EXPECT_FALSE(fs_->ReadLink(Path("a")).has_value());
  EXPECT_FALSE(fs_->ReadLink(Path("no")).has_value());
}

TEST_F(PosixFileSystemTest, SparseFilesShowWhatTheyUse) {
  const auto file = fs_->CreateFile(Path("sparse"));
  file->WriteAt(64 << 20, Bytes("x"));
  file->Close();
  const auto status = fs_->Stat(Path("sparse"));
  EXPECT_EQ(status->size_bytes, (64U << 20) + 1);
  EXPECT_LT(status->allocated_bytes, 1U << 20);
}

TEST_F(PosixFileSystemTest, RenameReplacesAndDirectoriesAreMade) {
  fs_->CreateDirectories(Path("d/e/f"));
  fs_->CreateDirectories(Path("d/e/f"));
  WriteBytes(scratch_ / "old", "old");
  WriteBytes(scratch_ / "new", "new");
  fs_->Rename(Path("new"), Path("old"));
  EXPECT_EQ(ReadBytes(scratch_ / "old"), "new");
  fs_->SyncDirectory(scratch_.path().string());
  fs_->Remove(Path("old"));
  EXPECT_EQ(CodeOf([&] { fs_->Remove(Path("old")); }), ErrorCode::kNotFound);
}

TEST_F(PosixFileSystemTest, SmallFilesHaveALimit) {
  WriteBytes(scratch_ / "f", "0123456789");
  EXPECT_EQ(ReadSmallFile(*fs_, Path("f"), 10), "0123456789");
  EXPECT_EQ(CodeOf([&] { ReadSmallFile(*fs_, Path("f"), 9); }),
            ErrorCode::kResourceExhausted);
}

TEST_F(PosixFileSystemTest, AnAtomicFileAppearsWholeOrNotAtAll) {
  WriteBytes(scratch_ / "f", "old");
  {
    AtomicFile file(fs_, Path("f"));
    file.file().WriteAt(0, Bytes("half"));
    EXPECT_EQ(ReadBytes(scratch_ / "f"), "old");
  }
  EXPECT_EQ(ReadBytes(scratch_ / "f"), "old");
  EXPECT_THAT(fs_->List(scratch_.path().string()), ElementsAre("f"));
  AtomicFile file(fs_, Path("f"));
  file.file().WriteAt(0, Bytes("new"));
  file.Commit();
  EXPECT_EQ(ReadBytes(scratch_ / "f"), "new");
  EXPECT_THAT(fs_->List(scratch_.path().string()), ElementsAre("f"));
}

TEST_F(PosixFileSystemTest, AnAtomicFileReplacesNothingButFiles) {
  ASSERT_EQ(::mkfifo(Path("fifo").c_str(), 0600), 0);
  fs_->CreateDirectories(Path("folder"));
  for (const char* name : {"fifo", "folder"}) {
    EXPECT_EQ(CodeOf([&] { AtomicFile(fs_, Path(name)); }),
              ErrorCode::kUnavailable)
        << name;
  }
  WriteBytes(scratch_ / "folder/target", "old");
  fs::create_symlink("folder/target", scratch_ / "link");
  AtomicFile file(fs_, Path("link"));
  file.file().WriteAt(0, Bytes("new"));
  file.Commit();
  EXPECT_EQ(ReadBytes(scratch_ / "folder/target"), "new");
  EXPECT_TRUE(fs::is_symlink(scratch_ / "link"));
  fs::create_symlink("loop", scratch_ / "loop");
  EXPECT_THROW(AtomicFile(fs_, Path("loop")), Error);
  EXPECT_FALSE(fs_->Stat(Path("loop")).has_value());
}

TEST_F(PosixFileSystemTest, TheDescriptorLimitIsResourceExhausted) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's own checks need descriptors";
#endif
  WriteBytes(scratch_ / "f", "x");
  struct rlimit limit {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit old = limit;
  limit.rlim_cur = 32;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<std::unique_ptr<RandomAccessFile>> files;
  const ErrorCode code = CodeOf([&] {
    for (int i = 0; i < 64; ++i) {
      files.push_back(fs_->OpenForRead(Path("f")));
    }
  });
  files.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_EQ(code, ErrorCode::kResourceExhausted);
}

TEST(FileDescriptorTest, OneOwnerAndClosedOnce) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  os::FileDescriptor a(ends[0]);
  os::FileDescriptor b(ends[1]);
  os::FileDescriptor moved(std::move(a));
  EXPECT_EQ(moved.get(), ends[0]);
  b = std::move(moved);  // Closes the old one.
  EXPECT_EQ(::fcntl(ends[1], F_GETFD), -1);
  EXPECT_EQ(b.Close(), 0);
  EXPECT_EQ(::fcntl(ends[0], F_GETFD), -1);
  EXPECT_EQ(b.Close(), 0);
  EXPECT_FALSE(b.valid());
}

}  // namespace
}  // namespace muonstore
