#include "converters/job_shares.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "converters/implied_weights.h"
#include "converters/segment_reader.h"
#include "muonstore/error.h"

namespace muonstore {
namespace {

TEST(JobShares, StayWithinTheLimit) {
  for (const uint64_t limit : {1U << 20, 3U << 20, 100U << 20, 1U << 30}) {
    for (const int32_t jobs : {-1, 1, 2, 7, 100'000}) {
      for (const size_t num_files : {0, 1, 3, 1000}) {
        const JobShares shares = DivideMemory(
            {.memory_limit_bytes = limit, .jobs = jobs}, num_files);
        ASSERT_GE(shares.jobs, 1);
        ASSERT_GE(shares.block_bytes, 4096U);
        EXPECT_EQ(shares.block_bytes % 4096, 0U);
        // Two blocks, the scratch of reader and weights, what the file holds
        // back.
        const uint64_t job = (2 + SegmentReader::kScratchPerByte +
                              ImpliedWeights::kScratchPerByte) *
                                 shares.block_bytes +
                             shares.file.buffer_bytes;
        EXPECT_LE(job * static_cast<uint64_t>(shares.jobs), limit);
        EXPECT_LE(shares.jobs, std::max(jobs, 1));
      }
    }
  }
}

TEST(JobShares, ThreadsWithoutAFileHelpOthers) {
  const auto threads = [](int32_t jobs, size_t num_files) {
    return DivideMemory({.jobs = jobs}, num_files).file.num_threads;
  };
  EXPECT_EQ(threads(8, 1), 8);
  EXPECT_EQ(threads(8, 3), 2);
  EXPECT_EQ(threads(8, 8), 1);
  EXPECT_EQ(threads(2, 1000), 1);
  EXPECT_EQ(threads(1, 0), 1);
}

TEST(JobShares, TooLittleIsRefused) {
  EXPECT_THROW((void)DivideMemory({.memory_limit_bytes = (1 << 20) - 1}, 1),
               Error);
}

}  // namespace
}  // namespace muonstore
