#include "formats/native/block_cache.h"

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muonstore::native {
namespace {

AlignedBytes BlockOf(int value) {
  AlignedBytes bytes(8);
  std::fill(bytes.span().begin(), bytes.span().end(), std::byte(value));
  return bytes;
}

class BlockCacheTest : public testing::Test {
 protected:
  // The first byte of the block, whose load counts.
  int Get(size_t block) {
    const auto bytes = cache_.Get({0, block}, [&] {
      ++num_loads_;
      return BlockOf(static_cast<int>(block));
    });
    return std::to_integer<int>(bytes->span()[0]);
  }

  BlockCache cache_{2};
  std::atomic<int> num_loads_ = 0;
};

TEST_F(BlockCacheTest, NeighboursShareALoad) {
  EXPECT_EQ(Get(7), 7);
  EXPECT_EQ(Get(7), 7);
  EXPECT_EQ(num_loads_, 1);
}

TEST_F(BlockCacheTest, TheOneUsedLongestAgoGoes) {
  Get(1);
  Get(2);
  Get(1);
  Get(3);
  EXPECT_TRUE(cache_.IsTheWay({0, 1}));
  EXPECT_FALSE(cache_.IsTheWay({0, 2}));
  EXPECT_EQ(Get(1), 1);
  EXPECT_EQ(num_loads_, 3);
  EXPECT_EQ(Get(2), 2);
  EXPECT_EQ(num_loads_, 4);
}

TEST_F(BlockCacheTest, IsTheWayToWhatWasNeverCompared) {
  EXPECT_TRUE(cache_.IsTheWay({0, 5}));
  cache_.SetCompared({0, 5});
  EXPECT_FALSE(cache_.IsTheWay({0, 5}));
  EXPECT_TRUE(cache_.IsTheWay({1, 5}));
}

TEST_F(BlockCacheTest, SegmentsHaveBlocksOfTheirOwn) {
  const auto one = cache_.Get({0, 4}, [] { return BlockOf(1); });
  const auto two = cache_.Get({1, 4}, [] { return BlockOf(2); });
  EXPECT_NE(one->span()[0], two->span()[0]);
}

TEST_F(BlockCacheTest, WhatIsHeldOutlivesItsPlace) {
  const auto held = cache_.Get({0, 1}, [] { return BlockOf(1); });
  for (size_t block = 2; block < 6; ++block) Get(block);
  EXPECT_EQ(held->span()[7], std::byte{1});
}

TEST_F(BlockCacheTest, AFailedLoadIsThrownAndForgotten) {
  const auto fail = []() -> AlignedBytes { throw std::runtime_error("bad"); };
  EXPECT_THROW(cache_.Get({0, 1}, fail), std::runtime_error);
  EXPECT_TRUE(cache_.IsTheWay({0, 1}));
  EXPECT_EQ(Get(1), 1);
}

TEST_F(BlockCacheTest, ThreadsThatComeAtOnceShareALoad) {
  std::vector<int> found(8);
  std::atomic<size_t> num_waiting = 0;
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < found.size(); ++i) {
      threads.emplace_back([&, i] {
        ++num_waiting;
        const auto bytes = cache_.Get({0, 9}, [&] {
          // No thread comes after the load has ended.
          while (num_waiting < found.size()) std::this_thread::yield();
          ++num_loads_;
          return BlockOf(9);
        });
        found[i] = std::to_integer<int>(bytes->span()[0]);
      });
    }
  }
  EXPECT_EQ(num_loads_, 1);
  EXPECT_THAT(found, testing::Each(9));
}

}  // namespace
}  // namespace muonstore::native
