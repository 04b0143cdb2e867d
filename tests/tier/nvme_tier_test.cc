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
#include "muonstore/tier.h"
#include "src/base/aligned_bytes.h"
#include "src/os/posix_file_system.h"
#include "tests/conformance/tier_suite.h"
#include "tests/testutil/scratch.h"
#include "tests/testutil/simulated_file_system.h"
#include "tests/tier/watched_scratch.h"

namespace muonstore {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string TemporaryDirectory() {
  return std::filesystem::temp_directory_path().string();
}

std::unique_ptr<Tier> MakeOver(std::shared_ptr<FileSystem> fs) {
  return MakeNvmeTier(
      {.directory = TemporaryDirectory(), .file_system = std::move(fs)});
}

std::unique_ptr<Tier> MakeNvme() {
  return MakeNvmeTier({.directory = TemporaryDirectory()});
}
std::unique_ptr<Tier> MakeNvmeOneByOne() {
  return MakeNvmeTier({.directory = TemporaryDirectory(), .queue_depth = 1});
}
std::unique_ptr<Tier> MakeNvmeByThreads() {
  return MakeOver(os::MakePosixFileSystem({.use_uring = false}));
}
std::unique_ptr<Tier> MakeNvmeBuffered() {
  return MakeOver(os::MakePosixFileSystem({.use_direct = false}));
}
std::unique_ptr<Tier> MakeNvmeOnTmpfs() {
  return MakeNvmeTier({.directory = "/dev/shm"});
}

INSTANTIATE_TEST_SUITE_P(Nvme, TierConformance,
                         testing::Values(MakeNvme, MakeNvmeOneByOne,
                                         MakeNvmeByThreads, MakeNvmeBuffered,
                                         MakeNvmeOnTmpfs));

Error ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return {ErrorCode::kInternal, ""};
}

// A write whose ends lie anywhere, with its own copy of the data.
struct Piece {
  uint64_t begin = 0;
  AlignedBytes memory;
  std::span<std::byte> data;
};

class Model {
 public:
  Model(Arena& arena, uint64_t size, uint64_t seed)
      : arena_(arena), bytes_(size), random_(seed) {}

  // Writes that tile the block, all under way at once, on several threads.
  void WriteAll() {
    std::vector<Piece> pieces = Cut();
    std::ranges::shuffle(pieces, random_);
    constexpr size_t kNumThreads = 3;
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kNumThreads; ++t) {
      threads.emplace_back([&, t] {
        std::vector<PendingPtr> writes;
        for (size_t i = t; i < pieces.size(); i += kNumThreads) {
          writes.push_back(
              arena_.Write({0, 1, pieces[i].begin}, pieces[i].data));
        }
        for (const PendingPtr& write : writes) write->Wait();
      });
    }
    std::ranges::for_each(threads, &std::thread::join);
  }

  void ReadSome() {
    for (int i = 0; i < 20; ++i) {
      const uint64_t begin = random_() % (bytes_.size() + 1);
      Piece piece = Make(begin, random_() % (bytes_.size() - begin + 1));
      std::ranges::fill(piece.memory.span(), std::byte{0xee});
      arena_.Read({0, 1, begin}, piece.data)->Wait();
      const auto expected = std::span(bytes_).subspan(begin, piece.data.size());
      ASSERT_TRUE(std::ranges::equal(piece.data, expected)) << begin;
      // Nothing beside it.
      const auto around = piece.memory.span();
      const auto first = static_cast<size_t>(piece.data.data() - around.data());
      ASSERT_EQ(std::ranges::count(around, std::byte{0xee}) -
                    std::ranges::count(piece.data, std::byte{0xee}),
                static_cast<int64_t>(around.size() - piece.data.size()))
          << first;
    }
  }

 private:
  // Memory that often lies as the range does in its block.
  Piece Make(uint64_t begin, uint64_t size) {
    Piece piece{.begin = begin, .memory = AlignedBytes(size + 2 * 4096)};
    const uint64_t shift = random_() % 2 == 0 ? begin % 4096 : random_() % 4096;
    piece.data = piece.memory.span().subspan(shift, size);
    return piece;
  }

  std::vector<Piece> Cut() {
    std::vector<Piece> pieces;
    for (uint64_t at = 0; at < bytes_.size();) {
      // Mostly within a block or two, so that many share one.
      const uint64_t most = random_() % 5 == 0 ? 1'500'000 : 6000;
      const uint64_t size = std::min(1 + random_() % most, bytes_.size() - at);
      Piece piece = Make(at, size);
      for (uint64_t i = 0; i < size; ++i) {
        bytes_[at + i] = piece.data[i] = static_cast<std::byte>(random_());
      }
      pieces.push_back(std::move(piece));
      at += size;
    }
    return pieces;
  }

  Arena& arena_;
  std::vector<std::byte> bytes_;
  std::mt19937_64 random_;
};

class NvmeProperty : public testing::TestWithParam<TierFactory> {};

TEST_P(NvmeProperty, AnyRangesFromAnyMemoryOnManyThreads) {
  const auto tier = GetParam()();
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    const uint64_t size = seed == 0 ? 4096 : 300'007 + seed * 700'001;
    const auto arena = tier->CreateArena(
        {.name = "master", .block_bytes = {size, size}, .num_slots = 2});
    Model model(*arena, size, seed);
    for (int round = 0; round < 3; ++round) {
      model.WriteAll();
      model.ReadSome();
    }
    // Neighbours stayed as they were.
    std::vector<std::byte> other(size);
    for (const BlockRange& range : {BlockRange{0, 0, 0}, BlockRange{1, 0, 0}}) {
      arena->Read(range, other)->Wait();
      EXPECT_TRUE(std::ranges::all_of(
          other, [](std::byte byte) { return byte == std::byte{0}; }));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, NvmeProperty,
                         testing::Values(MakeNvme, MakeNvmeOneByOne,
                                         MakeNvmeByThreads, MakeNvmeBuffered));

class NvmeTierTest : public testing::Test {
 protected:
  std::unique_ptr<Arena> MakeArena(uint64_t bytes) {
    return tier_->CreateArena(
        {.name = "master", .block_bytes = {bytes, bytes}});
  }

  std::shared_ptr<WatchedScratchSystem> fs_ =
      std::make_shared<WatchedScratchSystem>();
  std::unique_ptr<Tier> tier_ = MakeOver(fs_);
};

TEST_F(NvmeTierTest, WholeBlocksGoWithoutACopy) {
  const auto arena = MakeArena(1 << 20);
  const AlignedBytes memory(1 << 20);
  std::ranges::fill(memory.span(), std::byte{1});
  const auto data = memory.span().subspan(100, 3 * 4096);
  arena->Write({1, 0, 4096 * 5 + 100}, data)->Wait();
  arena->Read({1, 0, 4096 * 5 + 100}, data)->Wait();
  std::vector<const std::byte*> direct_writes;
  std::vector<const std::byte*> direct_reads;
  for (const ScratchTransfer& transfer : fs_->transfers()) {
    if (transfer.size_bytes != 2 * 4096) continue;
    (transfer.is_write ? direct_writes : direct_reads).push_back(transfer.data);
  }
  EXPECT_THAT(direct_writes, testing::ElementsAre(memory.data() + 4096));
  EXPECT_THAT(direct_reads, testing::ElementsAre(memory.data() + 4096));
}

TEST_F(NvmeTierTest, AWholeSlotIsWrittenWithoutReading) {
  const auto arena = MakeArena(10'000);
  const AlignedBytes memory(10'000);
  std::ranges::fill(memory.span(), std::byte{7});
  const size_t before = fs_->transfers().size();
  arena->Write({0, 0, 0}, memory.span())->Wait();
  const auto transfers = fs_->transfers();
  for (size_t i = before; i < transfers.size(); ++i) {
    EXPECT_TRUE(transfers[i].is_write);
  }
  EXPECT_EQ(transfers.size() - before, 2U);
}

TEST_F(NvmeTierTest, EveryFailureNamesArenaBlockAndSlot) {
  const auto arena = MakeArena(3 << 20);
  const AlignedBytes memory(2 << 20);
  std::ranges::fill(memory.span(), std::byte{9});
  // Congruent with both edges, and not congruent.
  for (const size_t shift : {100, 101}) {
    const auto data = memory.span().subspan(shift, (2 << 20) - 200);
    for (const bool is_write : {false, true}) {
      const auto move = [&] {
        return is_write ? arena->Write({1, 0, 100}, data)
                        : arena->Read({1, 0, 100}, data);
      };
      const size_t begin = fs_->transfers().size();
      move()->Wait();
      const size_t count = fs_->transfers().size() - begin;
      EXPECT_GT(count, 2U);
      for (size_t i = 0; i < count; ++i) {
        fs_->FailAfter(i);
        const auto pending = move();
        for (int again = 0; again < 2; ++again) {
          const Error error = ErrorOf([&] { pending->Wait(); });
          // The memory is ours again, whichever part failed.
          EXPECT_EQ(fs_->num_under_way(), 0);
          EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
          EXPECT_THAT(error.what(), HasSubstr("arena master block 1 slot 0"));
          EXPECT_THAT(error.what(), HasSubstr("the disk broke"));
          EXPECT_THAT(error.place().file, StartsWith(TemporaryDirectory()));
        }
        move()->Wait();  // What follows works.
      }
    }
  }
}

TEST_F(NvmeTierTest, AFullDiskIsAnErrorAtCreationThatSaysHowMuch) {
  fs_->full = true;
  const Error full = ErrorOf([&] { (void)MakeArena(10'000); });
  EXPECT_EQ(full.code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(full.what(), HasSubstr("arena master"));
  EXPECT_THAT(full.what(), HasSubstr("no space left"));
  EXPECT_EQ(full.place().expected, "24576 bytes");
  fs_->full = false;
  fs_->available = 24575;
  EXPECT_EQ(tier_->available_bytes(), 24575U);
  const Error less = ErrorOf([&] { (void)MakeArena(10'000); });
  EXPECT_EQ(less.code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(less.place().found, "24575 bytes available");
  EXPECT_EQ(less.place().file, TemporaryDirectory());
  fs_->available = 24576;
  (void)MakeArena(10'000);
}

TEST(NvmeTier, NeedsADirectoryThatIsThere) {
  const testutil::Scratch scratch;
  const std::string missing = (scratch / "not-mounted").string();
  const Error error =
      ErrorOf([&] { (void)MakeNvmeTier({.directory = missing}); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_EQ(error.place().file, missing);
  EXPECT_EQ(ErrorOf([&] {
              (void)MakeNvmeTier(
                  {.directory = scratch.path().string(), .queue_depth = 0});
            }).code(),
            ErrorCode::kInvalidArgument);
}

TEST(NvmeTier, LeavesNothingInTheDirectoryNotEvenWhileItLives) {
  const testutil::Scratch scratch;
  const auto tier = MakeNvmeTier({.directory = scratch.path().string()});
  const auto arena =
      tier->CreateArena({.name = "master", .block_bytes = {1 << 20}});
  const std::vector<std::byte> data(1 << 20, std::byte{3});
  arena->Write({0, 0, 0}, data)->Wait();
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

// Finds the scratch file among this process's descriptors and cuts it short.
void CutScratchFiles(const std::filesystem::path& directory, off_t size) {
  int num_cut = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target =
        std::filesystem::read_symlink(entry.path(), error).string();
    if (!target.starts_with(directory.string() + "/")) continue;
    const int fd = ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(::ftruncate(fd, size), 0);
    ::close(fd);
    ++num_cut;
  }
  ASSERT_EQ(num_cut, 1);
}

TEST(NvmeTier, AFileThatWasCutShortIsDataLoss) {
  const testutil::Scratch scratch;
  const auto tier = MakeNvmeTier({.directory = scratch.path().string()});
  const auto arena =
      tier->CreateArena({.name = "momentum", .block_bytes = {1 << 20}});
  CutScratchFiles(std::filesystem::canonical(scratch.path()), 500'000);
  const AlignedBytes out(1 << 20);
  const Error error = ErrorOf([&] {
    arena->Read({0, 0, 0}, out.span())->Wait();
  });
  EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
  EXPECT_THAT(error.what(), HasSubstr("arena momentum block 0 slot 0"));
  EXPECT_THAT(error.what(), HasSubstr("ends at byte 500000"));
}

TEST(NvmeTier, RegistersMemoryAndReportsIt) {
  const auto tier =
      MakeOver(os::MakePosixFileSystem({.max_registered_bytes = 600 << 10}));
  const AlignedBytes memory(1 << 20);
  const auto registered = tier->RegisterMemory(memory.span());
  ASSERT_NE(registered, nullptr);
  EXPECT_EQ(registered->report().total_bytes, 1U << 20);
  EXPECT_LE(registered->report().registered_bytes, 600U << 10);
  EXPECT_NE(registered->report().shortfall, "");
  EXPECT_EQ(MakePinnedHostTier()->RegisterMemory(memory.span()), nullptr);
}

TEST(NvmeTier, EveryTransferIsAnOperationOfTheSimulatedDisk) {
  const auto fs = std::make_shared<testutil::SimulatedFileSystem>(
      PosixFileSystem(), "/disk");
  const auto tier = MakeNvmeTier({.directory = "/disk", .file_system = fs});
  const auto arena =
      tier->CreateArena({.name = "master", .block_bytes = {1 << 20}});
  const AlignedBytes data(1 << 20);
  std::ranges::fill(data.span(), std::byte{5});
  const int64_t before = fs->num_operations();
  arena->Write({0, 0, 0}, data.span())->Wait();
  EXPECT_EQ(fs->num_operations(), before + 1);
  fs->FailAfter(0, testutil::Fault::kError);
  EXPECT_EQ(ErrorOf([&] {
              arena->Write({0, 0, 0}, data.span())->Wait();
            }).code(),
            ErrorCode::kUnavailable);
  AlignedBytes out(1 << 20);
  arena->Read({0, 0, 0}, out.span())->Wait();
  EXPECT_TRUE(std::ranges::equal(out.span(), data.span()));
  fs->LosePower();
  fs->Restart(1);
  EXPECT_THROW(arena->Read({0, 0, 0}, out.span())->Wait(), Error);
}

}  // namespace
}  // namespace muonstore
