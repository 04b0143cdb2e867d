#include "src/comm/shared/control_block.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "src/comm/call_record.h"

namespace muonstore::comm {
namespace {

struct Region {
  uintptr_t begin;
  uintptr_t end;
};

template <typename T>
Region RegionOf(T& object) {
  const auto begin = reinterpret_cast<uintptr_t>(&object);
  return {begin, begin + sizeof(T)};
}
template <typename T>
Region RegionOf(std::span<T> span) {
  const auto begin = reinterpret_cast<uintptr_t>(span.data());
  return {begin, begin + span.size_bytes()};
}

std::vector<Region> AllRegions(const ControlBlock& block, int32_t num_ranks) {
  std::vector<Region> regions = {RegionOf(block.failure())};
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    regions.push_back(RegionOf(block.rank(rank)));
    regions.push_back(RegionOf(block.record(rank, 0)));
    regions.push_back(RegionOf(block.record(rank, 1)));
    for (int32_t peer = 0; peer < num_ranks; ++peer) {
      regions.push_back(RegionOf(block.channel(rank, peer)));
      regions.push_back(RegionOf(block.bounce(rank, peer)));
    }
  }
  return regions;
}

class ControlBlockTest : public testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ControlBlockTest,
                         testing::Values(1, 2, 3, 7, 128));

TEST_P(ControlBlockTest, NoTwoPartsShareAByte) {
  const int32_t num_ranks = GetParam();
  const uint64_t size_bytes = ControlBlock::SizeBytes(num_ranks);
  // Addresses alone: a page-aligned one that nobody touches.
  auto* base = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);
  const ControlBlock block({base, size_bytes}, num_ranks);
  std::vector<Region> regions = AllRegions(block, num_ranks);
  std::ranges::sort(regions, {}, &Region::begin);
  EXPECT_EQ(regions.front().begin, reinterpret_cast<uintptr_t>(base));
  for (size_t i = 1; i < regions.size(); ++i) {
    ASSERT_LE(regions[i - 1].end, regions[i].begin) << i;
    ASSERT_LT(regions[i].begin, regions[i].end) << i;
  }
  EXPECT_LE(regions.back().end, reinterpret_cast<uintptr_t>(base) + size_bytes);
}

TEST_P(ControlBlockTest, TakesBoundedMemory) {
  EXPECT_LE(ControlBlock::SizeBytes(GetParam()), uint64_t{320} << 20);
}

TEST(ControlBlock, TwoRecordsOfARankTakeTurns) {
  std::vector<std::byte> memory(ControlBlock::SizeBytes(2) + 4096);
  const ControlBlock block(memory, 2);
  EXPECT_EQ(block.record(1, 4).data(), block.record(1, 6).data());
  EXPECT_NE(block.record(1, 4).data(), block.record(1, 5).data());
  EXPECT_EQ(block.record(1, 4).size(), CallRecord::LengthFor(2));
}

}  // namespace
}  // namespace muonstore::comm
