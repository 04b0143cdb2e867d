#include "formats/native/block_compressor.h"

#include <cstdlib>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "formats/native/block_codec.h"
#include "tests/testutil/no_threads.h"

namespace muonstore::native {
namespace {

// Blocks of very different work, so that they end out of order.
std::vector<std::byte> BlockOf(size_t index) {
  std::mt19937_64 random(index);
  std::vector<std::byte> block(index % 3 == 0 ? 400'000 : 4096);
  for (std::byte& byte : block) {
    byte = static_cast<std::byte>(random() % (index % 2 == 0 ? 256 : 2));
  }
  return block;
}

void CheckOrder(int32_t num_threads) {
  BlockCompressor compressor(3, num_threads);
  size_t next = 0;
  const auto take = [&] {
    EXPECT_EQ(compressor.Next(), CompressBlock(BlockOf(next), 4, 3)) << next;
    ++next;
  };
  for (size_t i = 0; i < 20; ++i) {
    if (compressor.full()) take();
    compressor.Start(BlockOf(i), 4);
    EXPECT_LE(i + 1 - next, static_cast<size_t>(num_threads));
  }
  while (!compressor.empty()) take();
  EXPECT_EQ(next, 20U);
}

TEST(BlockCompressor, GivesBlocksBackInOrder) {
  for (const int32_t num_threads : {1, 2, 5}) CheckOrder(num_threads);
}

TEST(BlockCompressor, MayBeLeftWithBlocksInIt) {
  BlockCompressor compressor(3, 4);
  for (size_t i = 0; i < 4; ++i) compressor.Start(BlockOf(i), 4);
  EXPECT_TRUE(compressor.full());
}

TEST(BlockCompressorDeathTest, CompressesByItselfWhereThereAreNoThreads) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer needs the memory that the test takes away";
#endif
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        testutil::RefuseThreads();
        CheckOrder(3);
        std::_Exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace muonstore::native
