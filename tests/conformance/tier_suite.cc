#include "tests/conformance/tier_suite.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "muonstore/error.h"

namespace muonstore {
namespace {

// Around the alignment, and empty.
const std::vector<uint64_t> kBlockBytes = {1,    4095, 4096,   0,
                                           4097, 12,   300007, 0};
constexpr int32_t kNumSlots = 3;

ArenaOptions Options(Pinning pinning = Pinning::kOff) {
  return {.name = "momentum",
          .block_bytes = kBlockBytes,
          .num_slots = kNumSlots,
          .pinning = pinning};
}

int32_t NumBlocks() { return static_cast<int32_t>(kBlockBytes.size()); }
uint64_t BytesOf(int32_t block) {
  return kBlockBytes[static_cast<size_t>(block)];
}

// Differs between the slots of all blocks and between neighbours of a slot:
// the period is a prime.
std::byte Expected(int32_t block, int32_t slot, uint64_t offset) {
  const auto seed = static_cast<uint64_t>(block * kNumSlots + slot);
  return static_cast<std::byte>((offset * 7 + seed * 31 + 1) % 251);
}

std::vector<std::byte> Pattern(int32_t block, int32_t slot, uint64_t begin,
                               uint64_t end) {
  std::vector<std::byte> bytes;
  bytes.reserve(end - begin);
  for (uint64_t offset = begin; offset < end; ++offset) {
    bytes.push_back(Expected(block, slot, offset));
  }
  return bytes;
}

std::vector<std::byte> ReadRange(Arena& arena, const BlockRange& range,
                                 uint64_t bytes) {
  std::vector<std::byte> out(bytes, std::byte{0xee});
  arena.Read(range, out)->Wait();
  return out;
}

template <typename Function>
void ForEachSlot(const Function& function) {
  for (int32_t block = 0; block < NumBlocks(); ++block) {
    for (int32_t slot = 0; slot < kNumSlots; ++slot) {
      function(block, slot);
    }
  }
}

void FillAll(Arena& arena) {
  ForEachSlot([&](int32_t block, int32_t slot) {
    arena.Write({block, slot, 0}, Pattern(block, slot, 0, BytesOf(block)))
        ->Wait();
  });
}

template <typename Function>
ErrorCode CodeOf(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kInternal;
}

TEST_P(TierConformance, FreshSlotsReadAsZero) {
  const auto arena = tier_->CreateArena(Options());
  ForEachSlot([&](int32_t block, int32_t slot) {
    EXPECT_THAT(ReadRange(*arena, {block, slot, 0}, BytesOf(block)),
                testing::Each(std::byte{0}))
        << block << " " << slot;
  });
}

TEST_P(TierConformance, EachSlotKeepsItsOwnBytes) {
  const auto arena = tier_->CreateArena(Options());
  FillAll(*arena);
  ForEachSlot([&](int32_t block, int32_t slot) {
    EXPECT_TRUE(ReadRange(*arena, {block, slot, 0}, BytesOf(block)) ==
                Pattern(block, slot, 0, BytesOf(block)))
        << block << " " << slot;
  });
}

TEST_P(TierConformance, ReadsRangesAtOddOffsets) {
  const auto arena = tier_->CreateArena(Options());
  FillAll(*arena);
  for (const uint64_t begin : {0, 1, 511, 4095, 4096, 150001}) {
    for (const uint64_t size : {0, 1, 3, 4096, 70001}) {
      EXPECT_TRUE(ReadRange(*arena, {6, 1, begin}, size) ==
                  Pattern(6, 1, begin, begin + size))
          << begin << " " << size;
    }
  }
}

TEST_P(TierConformance, AWriteTouchesItsRangeAlone) {
  const auto arena = tier_->CreateArena(Options());
  FillAll(*arena);
  auto expected = Pattern(6, 2, 0, BytesOf(6));
  for (const uint64_t begin : {1, 5000, 8191, 290000}) {
    const std::vector<std::byte> data(4099, std::byte{0xff});
    arena->Write({6, 2, begin}, data)->Wait();
    std::ranges::copy(data,
                      expected.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  EXPECT_TRUE(ReadRange(*arena, {6, 2, 0}, BytesOf(6)) == expected);
  for (const int32_t slot : {0, 1}) {
    EXPECT_TRUE(ReadRange(*arena, {6, slot, 0}, BytesOf(6)) ==
                Pattern(6, slot, 0, BytesOf(6)));
  }
}

TEST_P(TierConformance, ManyOperationsMayBeUnderWay) {
  const auto arena = tier_->CreateArena(Options());
  std::vector<std::vector<std::byte>> sources;
  std::vector<PendingPtr> writes;
  for (uint64_t part = 0; part < 100; ++part) {
    sources.push_back(Pattern(6, 0, part * 3000, (part + 1) * 3000));
    writes.push_back(arena->Write({6, 0, part * 3000}, sources.back()));
  }
  std::ranges::for_each(writes, [](PendingPtr& write) { write->Wait(); });
  std::vector<std::vector<std::byte>> read(100, std::vector<std::byte>(3000));
  std::vector<PendingPtr> reads;
  for (uint64_t part = 0; part < 100; ++part) {
    reads.push_back(arena->Read({6, 0, part * 3000}, read[part]));
  }
  // Waits in another order than the starts.
  std::for_each(reads.rbegin(), reads.rend(), [](PendingPtr& one) {
    one->Wait();
    EXPECT_TRUE(one->done());
    one->Wait();
  });
  EXPECT_TRUE(read == sources);
}

TEST_P(TierConformance, DestroyingAHandleWaits) {
  const auto arena = tier_->CreateArena(Options());
  {
    const auto data = Pattern(6, 0, 0, BytesOf(6));
    (void)arena->Write({6, 0, 0}, data);
  }
  EXPECT_TRUE(ReadRange(*arena, {6, 0, 0}, BytesOf(6)) ==
              Pattern(6, 0, 0, BytesOf(6)));
}

TEST_P(TierConformance, ThreadsUseDisjointRanges) {
  const auto arena = tier_->CreateArena(Options());
  std::vector<std::thread> threads;
  for (uint64_t part = 0; part < 4; ++part) {
    threads.emplace_back([&arena, part] {
      const uint64_t begin = part * 70000;
      const auto data = Pattern(6, 1, begin, begin + 70000);
      for (int round = 0; round < 5; ++round) {
        arena->Write({6, 1, begin}, data)->Wait();
        EXPECT_TRUE(ReadRange(*arena, {6, 1, begin}, 70000) == data);
      }
    });
  }
  std::ranges::for_each(threads, &std::thread::join);
  EXPECT_TRUE(ReadRange(*arena, {6, 1, 0}, 280000) == Pattern(6, 1, 0, 280000));
}

TEST_P(TierConformance, MemoryIsTheSlotsOwnAndNeverMoves) {
  if (!tier_->addressable()) {
    const auto arena = tier_->CreateArena(Options());
    EXPECT_TRUE(arena->memory(0, 0).empty());
    EXPECT_TRUE(arena->all_memory().empty());
    return;
  }
  const auto arena = tier_->CreateArena(Options());
  std::vector<std::byte*> addresses;
  ForEachSlot([&](int32_t block, int32_t slot) {
    const auto memory = arena->memory(block, slot);
    ASSERT_EQ(memory.size(), BytesOf(block));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 4096, 0U);
    addresses.push_back(memory.data());
  });
  FillAll(*arena);
  auto address = addresses.begin();
  ForEachSlot([&](int32_t block, int32_t slot) {
    const auto memory = arena->memory(block, slot);
    EXPECT_EQ(memory.data(), *address++);
    EXPECT_TRUE(
        std::ranges::equal(memory, Pattern(block, slot, 0, BytesOf(block))));
  });
}

TEST_P(TierConformance, AllMemoryHoldsEachSlotOnce) {
  const auto arena = tier_->CreateArena(Options());
  const auto all = arena->all_memory();
  if (!tier_->addressable()) {
    EXPECT_EQ(arena->shared_fd(), -1);
    return;
  }
  EXPECT_EQ(all.size(), tier_->ArenaBytes(Options()));
  FillAll(*arena);
  std::byte* previous_end = all.data();
  ForEachSlot([&](int32_t block, int32_t slot) {
    const auto memory = arena->memory(block, slot);
    EXPECT_GE(memory.data(), previous_end);
    previous_end = memory.data() + memory.size();
  });
  EXPECT_LE(previous_end, all.data() + all.size());
}

TEST_P(TierConformance, RefusesRangesOutsideOfTheirBlock) {
  const auto arena = tier_->CreateArena(Options());
  std::vector<std::byte> data(10);
  const std::vector<BlockRange> wrong = {
      {-1, 0, 0},
      {NumBlocks(), 0, 0},
      {6, -1, 0},
      {6, kNumSlots, 0},
      {0, 0, 0},
      {5, 0, 3},
      {3, 0, 0},
      {6, 0, 300007},
      {6, 0, std::numeric_limits<uint64_t>::max() - 4}};
  for (const BlockRange& range : wrong) {
    EXPECT_EQ(CodeOf([&] { arena->Read(range, data)->Wait(); }),
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(CodeOf([&] { arena->Write(range, data)->Wait(); }),
              ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(CodeOf([&] { (void)arena->memory(0, kNumSlots); }),
            ErrorCode::kInvalidArgument);
}

TEST_P(TierConformance, RefusesOptionsThatMakeNoSense) {
  ArenaOptions no_slots = Options();
  no_slots.num_slots = 0;
  ArenaOptions overflow = Options();
  overflow.block_bytes = {uint64_t{1} << 62, uint64_t{1} << 62};
  ArenaOptions rounds_over = Options();
  rounds_over.block_bytes = {std::numeric_limits<uint64_t>::max()};
  for (const ArenaOptions& options : {no_slots, overflow, rounds_over}) {
    EXPECT_EQ(CodeOf([&] { (void)tier_->CreateArena(options); }),
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(CodeOf([&] { (void)tier_->ArenaBytes(options); }),
              ErrorCode::kInvalidArgument);
  }
}

TEST_P(TierConformance, RefusesWhatDoesNotFitBeforeItTakesAnything) {
  ArenaOptions options = Options();
  options.block_bytes = {uint64_t{1} << 60};
  options.num_slots = 1;
  try {
    (void)tier_->CreateArena(options);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_THAT(error.what(), testing::HasSubstr("momentum"));
    EXPECT_THAT(error.place().expected,
                testing::StartsWith(std::to_string(uint64_t{1} << 60)));
    EXPECT_FALSE(error.place().found.empty());
  }
  EXPECT_LT(tier_->available_bytes(), uint64_t{1} << 60);
  EXPECT_GT(tier_->available_bytes(), uint64_t{1} << 20);
}

TEST_P(TierConformance, AnArenaOfNothingIsLegal) {
  for (const std::vector<uint64_t>& blocks :
       {std::vector<uint64_t>{}, std::vector<uint64_t>{0, 0}}) {
    ArenaOptions options = Options(Pinning::kRequired);
    options.block_bytes = blocks;
    const auto arena = tier_->CreateArena(options);
    EXPECT_EQ(arena->name(), "momentum");
    EXPECT_EQ(arena->pin_report().total_bytes, 0U);
    EXPECT_EQ(tier_->ArenaBytes(options), 0U);
  }
}

TEST_P(TierConformance, ReportsPinningThatWasNotAskedFor) {
  const auto arena = tier_->CreateArena(Options(Pinning::kOff));
  FillAll(*arena);
  const PinReport& report = arena->pin_report();
  EXPECT_EQ(report.asked, Pinning::kOff);
  EXPECT_EQ(report.method, "none");
  EXPECT_EQ(report.pinned_bytes, 0U);
  EXPECT_EQ(report.shortfall, "");
}

size_t NumOpenFiles() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

TEST_P(TierConformance, LeavesNoDescriptorBehind) {
  const size_t before = NumOpenFiles();
  for (int round = 0; round < 3; ++round) {
    FillAll(*tier_->CreateArena(Options(Pinning::kTry)));
  }
  EXPECT_EQ(NumOpenFiles(), before);
}

}  // namespace
}  // namespace muonstore
