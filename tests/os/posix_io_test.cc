// Asynchronous and direct transfers of real files, by io_uring and by threads.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "muonstore/log.h"
#include "src/base/aligned_bytes.h"
#include "src/os/posix_file_system.h"
#include "tests/testutil/scratch.h"

namespace muonstore::os {
namespace {

using testing::AllOf;
using testing::Ge;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Le;
using testutil::ReadBytes;
using testutil::Scratch;
using testutil::WriteBytes;

// Every byte tells its place.
void FillUnique(std::span<std::byte> bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
}

std::string AsString(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

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

// The log's lines while it lives.
class LogLines {
 public:
  LogLines() {
    SetLogHandler(
        [this](LogLevel, std::string_view text) { lines_.emplace_back(text); });
  }
  ~LogLines() { SetLogHandler({}); }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

struct IoCase {
  const char* name;
  IoOptions options;
};

class PosixIoTest : public testing::TestWithParam<IoCase> {
 protected:
  std::string Path(std::string_view name) const {
    return (scratch_ / name).string();
  }

  LogLines log_;
  Scratch scratch_;
  std::shared_ptr<FileSystem> fs_ = MakePosixFileSystem(GetParam().options);
};

TEST_P(PosixIoTest, WritesAndReadsAnyRange) {
  AlignedBytes data(3'000'001);
  FillUnique(data.span(), 1);
  const auto file = fs_->CreateDirectFile(Path("f"));
  file->Preallocate(2'000'000);
  std::vector<PendingPtr> writes;
  const std::vector<size_t> cuts = {0,         1,         4096,     8192,
                                    1'060'000, 2'097'152, 3'000'001};
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    writes.push_back(file->StartWrite(
        cuts[i], data.span().subspan(cuts[i], cuts[i + 1] - cuts[i])));
  }
  for (const PendingPtr& write : writes) write->Wait();
  file->Sync();
  file->Close();
  EXPECT_TRUE(ReadBytes(scratch_ / "f") == AsString(data.span()));

  const auto reader = fs_->OpenForDirectRead(Path("f"));
  EXPECT_EQ(reader->size_bytes(), data.size());
  AlignedBytes out(data.size() + 8192);
  for (const uint64_t begin : {0, 1, 4095, 4096, 1'048'576, 2'999'999}) {
    for (const uint64_t shift : {uint64_t{0}, uint64_t{7}, begin % 4096}) {
      const auto to = out.span().subspan(shift, data.size() - begin);
      std::fill(to.begin(), to.end(), std::byte{0});
      const auto read = reader->StartRead(begin, to);
      read->Wait();
      EXPECT_TRUE(read->done());
      EXPECT_TRUE(std::ranges::equal(to, data.span().subspan(begin)))
          << begin << " " << shift;
    }
  }
}

TEST_P(PosixIoTest, AFileThatEndsSaysWhere) {
  WriteBytes(scratch_ / "f", std::string(5000, 'x'));
  const AlignedBytes out(16384);
  for (const bool direct : {false, true}) {
    const auto file = direct ? fs_->OpenForDirectRead(Path("f"))
                             : fs_->OpenForRead(Path("f"));
    const auto read = file->StartRead(0, out.span());
    try {
      read->Wait();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
      EXPECT_THAT(error.what(), HasSubstr("ends at byte 5000"));
      EXPECT_EQ(error.place().file, Path("f"));
    }
  }
}

TEST_P(PosixIoTest, NothingAndMissingFiles) {
  WriteBytes(scratch_ / "f", "x");
  fs_->OpenForDirectRead(Path("f"))->StartRead(1, {})->Wait();
  EXPECT_EQ(CodeOf([&] { fs_->OpenForDirectRead(Path("no")); }),
            ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf([&] { fs_->CreateDirectFile(Path("f")); }),
            ErrorCode::kInvalidArgument);
  // The probe leaves nothing behind.
  fs_->CreateDirectFile(Path("g"))->Close();
  EXPECT_EQ(ReadBytes(scratch_ / "g"), "");
}

TEST_P(PosixIoTest, RoomThatIsNotThereIsRefusedAtOnce) {
  const auto file = fs_->CreateDirectFile(Path("f"));
  EXPECT_EQ(CodeOf([&] { file->Preallocate(uint64_t{1} << 60); }),
            ErrorCode::kResourceExhausted);
}

TEST_P(PosixIoTest, ScratchFilesAreZeroAndKeepWhatIsWritten) {
  const auto file = fs_->CreateScratchFile(Path(""), 5 << 20);
  EXPECT_EQ(file->size_bytes(), 5U << 20);
  AlignedBytes data(3 << 20);
  file->StartRead(0, data.span())->Wait();
  EXPECT_TRUE(std::ranges::all_of(
      data.span(), [](std::byte byte) { return byte == std::byte{0}; }));
  FillUnique(data.span(), 2);
  file->StartWrite(1 << 20, data.span())->Wait();
  AlignedBytes out(3 << 20);
  file->StartRead(1 << 20, out.span())->Wait();
  EXPECT_TRUE(std::ranges::equal(out.span(), data.span()));
  file->StartRead(4 << 20, out.span().first(1 << 20))->Wait();
  EXPECT_TRUE(
      std::ranges::all_of(out.span().first(1 << 20),
                          [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_P(PosixIoTest, ScratchFilesHaveNoNameAndTheirRoomIsTaken) {
  const uint64_t before = fs_->AvailableBytes(Path(""));
  const auto file = fs_->CreateScratchFile(Path(""), 64 << 20);
  EXPECT_THAT(fs_->List(Path("")), IsEmpty());
  EXPECT_THAT(file->path(), HasSubstr(scratch_.path().string()));
  EXPECT_LT(fs_->AvailableBytes(Path("")), before);
}

TEST_P(PosixIoTest, ScratchFilesRefuseWhatIsNotInside) {
  const auto file = fs_->CreateScratchFile(Path(""), 8192);
  const AlignedBytes data(16384);
  const auto refuses = [&](uint64_t offset, std::span<std::byte> range) {
    EXPECT_EQ(CodeOf([&] { (void)file->StartRead(offset, range); }),
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(CodeOf([&] { (void)file->StartWrite(offset, range); }),
              ErrorCode::kInvalidArgument);
  };
  refuses(1, data.span().first(4096));
  refuses(0, data.span().first(100));
  refuses(0, data.span().subspan(512, 4096));
  refuses(4096, data.span().first(8192));
  refuses(~uint64_t{4095}, data.span().first(8192));
  EXPECT_EQ(CodeOf([&] { (void)fs_->CreateScratchFile(Path(""), 100); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] { (void)fs_->CreateScratchFile(Path("no"), 4096); }),
            ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf([&] { (void)fs_->CreateScratchFile(Path(""), 1ULL << 60); }),
            ErrorCode::kResourceExhausted);
}

TEST_P(PosixIoTest, ThreadsShareAScratchFile) {
  const auto file = fs_->CreateScratchFile(Path(""), 4 << 20);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      AlignedBytes data(1 << 20);
      FillUnique(data.span(), t);
      AlignedBytes out(1 << 20);
      for (int round = 0; round < 3; ++round) {
        file->StartWrite(t << 20, data.span())->Wait();
        file->StartRead(t << 20, out.span())->Wait();
        EXPECT_TRUE(std::ranges::equal(out.span(), data.span()));
      }
    });
  }
  std::ranges::for_each(threads, &std::thread::join);
}

TEST_P(PosixIoTest, RegisteredMemoryCarriesTheSameBytes) {
  AlignedBytes data(1 << 20);
  FillUnique(data.span(), 3);
  const auto registered = fs_->RegisterMemory(data.span());
  const IoMemoryReport report = registered->report();
  EXPECT_EQ(report.total_bytes, data.size());
  EXPECT_LE(report.registered_bytes, GetParam().options.max_registered_bytes);
  EXPECT_EQ(report.registered_bytes == report.total_bytes,
            report.shortfall.empty());
  const auto file = fs_->CreateScratchFile(Path(""), 1 << 20);
  file->StartWrite(0, data.span())->Wait();
  const std::string expected = AsString(data.span());
  std::fill_n(data.data(), data.size(), std::byte{0});
  file->StartRead(0, data.span())->Wait();
  EXPECT_TRUE(AsString(data.span()) == expected);
}

TEST_P(PosixIoTest, WhatIsRefusedIsSaidOnce) {
  for (const char* name : {"a", "b"}) {
    const auto file = fs_->CreateDirectFile(Path(name));
    file->StartWrite(0, {})->Wait();
    const auto scratch = fs_->CreateScratchFile(Path(""), 4096);
  }
  const auto count = [&](const char* text) {
    return std::ranges::count_if(log_.lines(), [&](const std::string& line) {
      return line.find(text) != std::string::npos;
    });
  };
  // What is not refused here may be refused by the system: once, as well.
  EXPECT_THAT(count("io_uring is refused"),
              AllOf(Le(1), Ge(GetParam().options.use_uring ? 0 : 1)));
  EXPECT_THAT(count("O_DIRECT"),
              AllOf(Le(1), Ge(GetParam().options.use_direct ? 0 : 1)));
}

INSTANTIATE_TEST_SUITE_P(
    Ways, PosixIoTest,
    testing::Values(IoCase{"Uring", {}},
                    IoCase{"Threads", {.use_uring = false}},
                    IoCase{"Buffered", {.use_direct = false}},
                    IoCase{"OneByOne", {.queue_depth = 1, .piece_bytes = 8192}},
                    IoCase{"FewRegistered", {.max_registered_bytes = 300'000}},
                    IoCase{"ThreadsBuffered",
                           {.use_uring = false, .use_direct = false}}),
    [](const testing::TestParamInfo<IoCase>& one) {
      return std::string(one.param.name);
    });

TEST(PosixIoOnTmpfs, ScratchFilesWork) {
  const std::string directory = "/dev/shm";
  if (!std::filesystem::is_directory(directory)) GTEST_SKIP() << "no tmpfs";
  const LogLines log;
  const auto fs = PosixFileSystem();
  const auto before = fs->List(directory);
  const auto file = fs->CreateScratchFile(directory, 1 << 20);
  AlignedBytes data(1 << 20);
  FillUnique(data.span(), 4);
  file->StartWrite(0, data.span())->Wait();
  AlignedBytes out(1 << 20);
  file->StartRead(0, out.span())->Wait();
  EXPECT_TRUE(std::ranges::equal(out.span(), data.span()));
  EXPECT_EQ(fs->List(directory), before);
}

}  // namespace
}  // namespace muonstore::os
