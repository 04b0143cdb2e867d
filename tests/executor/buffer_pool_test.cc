#include "src/executor/buffer_pool.h"

#include <set>

#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/tensor/error_of.h"

namespace muonstore {
namespace {

TEST(BufferPoolTest, HandsOutTheLeastRecentlyUsed) {
  const auto tier = MakePinnedHostTier();
  BufferPool pool(*tier, {.num_buffers = 3, .buffer_bytes = 5000});
  const int32_t a = pool.Acquire();
  const int32_t b = pool.Acquire();
  pool.Return(a);
  pool.Return(b);
  const int32_t c = pool.Acquire();
  EXPECT_EQ(std::set<int32_t>({a, b, c}).size(), 3U);
  EXPECT_EQ(pool.Acquire(), a);
}

TEST(BufferPoolTest, BuffersAreApartAndWhole) {
  const auto tier = MakePinnedHostTier();
  BufferPool pool(*tier, {.num_buffers = 2, .buffer_bytes = 5000});
  const auto first = pool.bytes(0);
  const auto second = pool.bytes(1);
  ASSERT_EQ(first.size(), 5000U);
  ASSERT_EQ(second.size(), 5000U);
  EXPECT_TRUE(first.data() + 5000 <= second.data() ||
              second.data() + 5000 <= first.data());
}

TEST(BufferPoolTest, ReportsItsPeak) {
  const auto tier = MakePinnedHostTier();
  BufferPool pool(*tier, {.num_buffers = 3, .buffer_bytes = 100});
  EXPECT_EQ(pool.peak_bytes(), 0U);
  pool.Return(pool.Acquire());
  EXPECT_EQ(pool.peak_bytes(), 100U);
  const int32_t held = pool.Acquire();
  pool.Return(pool.Acquire());
  pool.Return(held);
  EXPECT_EQ(pool.peak_bytes(), 200U);
  EXPECT_EQ(pool.num_free(), 3);
}

TEST(BufferPoolTest, AnEmptyPoolHasNothing) {
  const auto tier = MakePinnedHostTier();
  BufferPool pool(*tier, {.num_buffers = 0, .buffer_bytes = 0});
  EXPECT_EQ(CodeOf([&] { pool.Acquire(); }), ErrorCode::kInternal);
}

}  // namespace
}  // namespace muonstore
