#include "src/inspect/parallel.h"

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/testutil/no_threads.h"

namespace muonstore {
namespace {

TEST(ParallelFor, VisitsEveryIndexOnce) {
  for (const int32_t jobs : {0, 1, 2, 7, 100}) {
    for (const size_t count : {0, 1, 5, 1000}) {
      std::vector<std::atomic<int>> visits(count);
      ParallelFor(count, jobs, [&](size_t i) { ++visits[i]; });
      for (const auto& n : visits) EXPECT_EQ(n.load(), 1);
    }
  }
}

TEST(ParallelFor, RethrowsAndStops) {
  for (const int32_t jobs : {1, 4}) {
    std::atomic<size_t> started{0};
    try {
      ParallelFor(100000, jobs, [&](size_t i) {
        ++started;
        if (i == 3) throw std::runtime_error("three");
      });
      FAIL() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "three");
    }
    if (jobs == 1) {
      EXPECT_EQ(started.load(), 4U);
    }
  }
}

// A death test runs in a process of its own.
using ParallelForDeathTest = testing::Test;

TEST(ParallelForDeathTest, WorksOnTheCallersThreadWhereNoOtherStarts) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer needs the memory that the test takes away";
#endif
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        testutil::RefuseThreads();
        size_t sum = 0;
        ParallelFor(100, 8, [&](size_t i) { sum += i; });
        std::_Exit(sum == 4950 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(ByteProgress, AddsUp) {
  std::vector<std::pair<uint64_t, uint64_t>> calls;
  ByteProgress progress(
      [&](uint64_t done, uint64_t total) { calls.emplace_back(done, total); },
      10);
  progress.Add(4);
  progress.Add(6);
  EXPECT_EQ(calls,
            (std::vector<std::pair<uint64_t, uint64_t>>{{4, 10}, {10, 10}}));
}

TEST(ByteProgress, CallbackIsOptional) {
  ByteProgress progress({}, 1);
  EXPECT_NO_THROW(progress.Add(1));
}

}  // namespace
}  // namespace muonstore
