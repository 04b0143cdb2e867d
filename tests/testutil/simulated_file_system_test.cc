// The simulated disk must lose exactly what a real one may lose.
#include "tests/testutil/simulated_file_system.h"

#include <memory>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/tensor/error_of.h"

namespace muonstore::testutil {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::IsSupersetOf;
using testing::Key;
using testing::Not;
using testing::Pair;

std::shared_ptr<SimulatedFileSystem> NewDisk() {
  return std::make_shared<SimulatedFileSystem>(PosixFileSystem(), "/sim");
}

void Write(FileSystem& fs, const std::string& path, std::string_view text,
           bool sync) {
  const auto file = fs.CreateFile(path);
  file->WriteAt(0, std::as_bytes(std::span(text)));
  if (sync) file->Sync();
  file->Close();
}

std::string Read(FileSystem& fs, const std::string& path) {
  return ReadSmallFile(fs, path, 1000);
}

// Every content that a file of the disk may have after a restart; "-" where
// there is none.
std::set<std::string> Futures(const SimulatedFileSystem& fs,
                              const std::string& name) {
  std::set<std::string> futures;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto copy = fs.Copy();
    copy->LosePower();
    copy->Restart(seed);
    const auto all = copy->Everything();
    const auto found = all.find(name);
    futures.insert(found == all.end() ? "-" : found->second);
  }
  return futures;
}

TEST(SimulatedFileSystemTest, WorksAsAFileSystem) {
  const auto fs = NewDisk();
  fs->CreateDirectories("/sim/a/b");
  Write(*fs, "/sim/a/b/f", "text", true);
  EXPECT_EQ(Read(*fs, "/sim/a/b/f"), "text");
  EXPECT_THAT(fs->List("/sim/a"), ElementsAre("b"));
  EXPECT_EQ(fs->Stat("/sim/a/b/f")->size_bytes, 4U);
  EXPECT_FALSE(fs->Stat("/sim/x").has_value());
  EXPECT_EQ(CodeOf([&] { fs->CreateFile("/sim/a/b/f"); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] { fs->RemoveDirectory("/sim/a/b"); }),
            ErrorCode::kUnavailable);
  fs->Rename("/sim/a/b", "/sim/c");
  fs->CreateDirectories("/sim/d");
  EXPECT_TRUE(fs->Exchange("/sim/c", "/sim/d"));
  EXPECT_EQ(Read(*fs, "/sim/d/f"), "text");
  fs->Remove("/sim/d/f");
  fs->RemoveDirectory("/sim/d");
  EXPECT_THAT(fs->Everything(), ElementsAre(Key("a/"), Key("c/")));
}

TEST(SimulatedFileSystemTest, ReadsTheBaseAndNeverWritesIt) {
  const auto fs = NewDisk();
  EXPECT_TRUE(fs->Stat("/").has_value());
  EXPECT_EQ(CodeOf([&] { fs->CreateFile("/elsewhere"); }),
            ErrorCode::kInternal);
}

TEST(SimulatedFileSystemTest, LocksExclude) {
  const auto fs = NewDisk();
  auto lock = fs->TryLock("/sim/lock");
  EXPECT_NE(lock, nullptr);
  EXPECT_EQ(fs->TryLock("/sim/lock"), nullptr);
  lock.reset();
  EXPECT_NE(fs->TryLock("/sim/lock"), nullptr);
}

TEST(SimulatedFileSystemTest, WhatWasSyncedSurvives) {
  const auto fs = NewDisk();
  Write(*fs, "/sim/f", "text", true);
  fs->SyncDirectory("/sim");
  EXPECT_THAT(Futures(*fs, "f"), ElementsAre("text"));
}

TEST(SimulatedFileSystemTest, AnUnsyncedFileMayBeAnything) {
  const auto fs = NewDisk();
  Write(*fs, "/sim/f", "text", false);
  fs->SyncDirectory("/sim");
  const auto futures = Futures(*fs, "f");
  EXPECT_THAT(futures, IsSupersetOf({"", "te", "text"}));
  EXPECT_THAT(futures, Not(Contains("-")));
}

TEST(SimulatedFileSystemTest, AnUnsyncedNameMayBeMissing) {
  const auto fs = NewDisk();
  Write(*fs, "/sim/f", "text", true);
  EXPECT_THAT(Futures(*fs, "f"), ElementsAre("-", "text"));
}

TEST(SimulatedFileSystemTest, ARenameIsOldOrNew) {
  const auto fs = NewDisk();
  Write(*fs, "/sim/old", "old", true);
  Write(*fs, "/sim/new", "new", true);
  fs->SyncDirectory("/sim");
  fs->Rename("/sim/new", "/sim/old");
  EXPECT_THAT(Futures(*fs, "old"), ElementsAre("new", "old"));
  EXPECT_THAT(Futures(*fs, "new"), ElementsAre("-", "new"));
  fs->SyncDirectory("/sim");
  EXPECT_THAT(Futures(*fs, "old"), ElementsAre("new"));
}

TEST(SimulatedFileSystemTest, AnOverwriteMayBeTorn) {
  const auto fs = NewDisk();
  const auto file = fs->CreateFile("/sim/f");
  file->WriteAt(0, std::as_bytes(std::span(std::string_view("aaaa"))));
  file->Sync();
  fs->SyncDirectory("/sim");
  file->WriteAt(0, std::as_bytes(std::span(std::string_view("bbbb"))));
  EXPECT_THAT(Futures(*fs, "f"),
              IsSupersetOf({"aaaa", "baaa", "bbaa", "bbbb"}));
}

TEST(SimulatedFileSystemTest, TheChosenOperationFails) {
  const auto fs = NewDisk();
  fs->FailAfter(2, Fault::kError);
  const auto file = fs->CreateFile("/sim/f");
  file->WriteAt(0, std::as_bytes(std::span(std::string_view("text"))));
  EXPECT_EQ(CodeOf([&] { file->Sync(); }), ErrorCode::kUnavailable);
  file->Sync();  // Once.
  EXPECT_EQ(fs->num_operations(), 4);
}

TEST(SimulatedFileSystemTest, AShortWriteLeavesHalf) {
  const auto fs = NewDisk();
  const auto file = fs->CreateFile("/sim/f");
  fs->FailAfter(0, Fault::kShortWrite);
  EXPECT_TRUE(ErrorOf([&] {
                file->WriteAt(
                    0, std::as_bytes(std::span(std::string_view("text"))));
              }).has_value());
  EXPECT_THAT(fs->Everything(), Contains(Pair("f", "te")));
}

TEST(SimulatedFileSystemTest, WithoutPowerNothingWorks) {
  const auto fs = NewDisk();
  const auto file = fs->CreateFile("/sim/f");
  auto lock = fs->TryLock("/sim/lock");
  fs->FailAfter(0, Fault::kPowerLoss);
  EXPECT_TRUE(ErrorOf([&] { fs->SyncDirectory("/sim"); }).has_value());
  EXPECT_FALSE(fs->has_power());
  EXPECT_TRUE(ErrorOf([&] { fs->Stat("/sim"); }).has_value());
  EXPECT_TRUE(ErrorOf([&] { file->Sync(); }).has_value());
  lock.reset();
  fs->Restart(1);
  EXPECT_TRUE(fs->Stat("/sim").has_value());
  // Of before: still dead.
  EXPECT_TRUE(ErrorOf([&] { file->Sync(); }).has_value());
  EXPECT_NE(fs->TryLock("/sim/lock"), nullptr);
}

}  // namespace
}  // namespace muonstore::testutil
