#include "converters/block_source.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/testutil/memory_checkpoint.h"
#include "tests/testutil/no_threads.h"

namespace muonstore {
namespace {

constexpr int64_t kCount = 10'007;
// 1024 floats: ten blocks, the last one a part.
constexpr size_t kBlockBytes = 4096;

class BlockSourceTest : public testing::Test {
 protected:
  BlockSourceTest() {
    source_.Add({.parameter = "a", .shape = {kCount}, .num_pieces = 3},
                testutil::UniqueValues(kCount));
  }

  // Elements behind a gap of five zeros.
  SinkSegment Segment() const {
    return {.num_elements = kCount + 5,
            .pieces = {{.segment_offset = 5, .length = kCount}}};
  }

  // Every block, one behind the other.
  static std::vector<float> ReadAll(BlockSource& blocks) {
    std::vector<float> all;
    while (!blocks.done()) {
      const auto block = blocks.Next();
      EXPECT_LE(block.size(), kBlockBytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data()) % 4096, 0U);
      const size_t begin = all.size();
      all.resize(begin + block.size() / sizeof(float));
      std::memcpy(all.data() + begin, block.data(), block.size());
    }
    return all;
  }

  static std::vector<float> Expected() {
    std::vector<float> expected(5);
    const auto values = testutil::UniqueValues(kCount);
    expected.insert(expected.end(), values.begin(), values.end());
    return expected;
  }

  testutil::MemoryCheckpoint source_;
};

TEST_F(BlockSourceTest, GivesTheBlocksInOrder) {
  const SinkSegment segment = Segment();
  BlockSource blocks(source_, segment, kBlockBytes);
  EXPECT_EQ(ReadAll(blocks), Expected());
  EXPECT_TRUE(blocks.done());
}

TEST_F(BlockSourceTest, ASegmentOfNothingIsDone) {
  const SinkSegment segment;
  EXPECT_TRUE(BlockSource(source_, segment, kBlockBytes).done());
}

TEST_F(BlockSourceTest, AnErrorComesWithItsBlock) {
  source_.Add({.parameter = "b", .shape = {1024}},
              testutil::UniqueValues(1024));
  SinkSegment segment = Segment();
  segment.num_elements = 3 * 1024;
  segment.pieces = {{.length = 2048},
                    {.tensor = 1, .segment_offset = 2048, .length = 1024}};
  source_.Poison(1);
  BlockSource blocks(source_, segment, kBlockBytes);
  (void)blocks.Next();
  (void)blocks.Next();
  EXPECT_THROW((void)blocks.Next(), Error);
}

TEST_F(BlockSourceTest, MayBeLeftWhileABlockIsReadAhead) {
  const SinkSegment segment = Segment();
  BlockSource blocks(source_, segment, kBlockBytes);
  (void)blocks.Next();
}

TEST_F(BlockSourceTest, OverflowsAreThoseOfTheBlock) {
  source_.Add({.parameter = "b", .shape = {2048}},
              std::vector<float>(2048, 1e30F));
  const SinkSegment segment{
      .dtype = DType::kF16,
      .num_elements = 4096,
      .pieces = {{.length = 2048},
                 {.tensor = 1, .segment_offset = 2048, .length = 2048}}};
  BlockSource blocks(source_, segment, kBlockBytes);
  (void)blocks.Next();
  EXPECT_TRUE(blocks.overflows().empty());
  (void)blocks.Next();
  ASSERT_EQ(blocks.overflows().size(), 1U);
  EXPECT_EQ(blocks.overflows()[0].tensor, 1U);
  EXPECT_EQ(blocks.overflows()[0].num_elements, 2048);
}

using BlockSourceDeathTest = BlockSourceTest;

TEST_F(BlockSourceDeathTest, ReadsByItselfWhereThereAreNoThreads) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer needs the memory that the test takes away";
#endif
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        testutil::RefuseThreads();
        const SinkSegment segment = Segment();
        BlockSource blocks(source_, segment, kBlockBytes);
        std::_Exit(ReadAll(blocks) == Expected() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace muonstore
