#include "muonstore/thread_pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/testutil/no_threads.h"

namespace muonstore {
namespace {

TEST(ThreadPool, RunsEveryItemOnce) {
  for (const int num_threads : {1, 2, 3, 5}) {
    ThreadPool pool(num_threads);
    EXPECT_EQ(pool.num_threads(), num_threads);
    for (const int64_t num_items : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> counts(static_cast<size_t>(num_items));
      pool.ParallelFor(num_items, [&](int64_t item) {
        ++counts[static_cast<size_t>(item)];
      });
      for (const auto& count : counts) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, UsesAllItsThreadsAtOnce) {
  constexpr int kThreads = 4;
  ThreadPool pool(kThreads);
  // Ends only if as many items run at the same time.
  std::barrier barrier(kThreads);
  pool.ParallelFor(kThreads, [&](int64_t) { barrier.arrive_and_wait(); });
}

TEST(ThreadPool, OneThreadRunsInlineAndInOrder) {
  ThreadPool pool(1);
  std::vector<int64_t> order;
  const auto caller = std::this_thread::get_id();
  pool.ParallelFor(5, [&](int64_t item) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(item);
  });
  EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 2, 3, 4}));
}

TEST(ThreadPool, AnExceptionComesOutAndThePoolWorksOn) {
  for (const int num_threads : {1, 3}) {
    ThreadPool pool(num_threads);
    std::atomic<int> num_run = 0;
    try {
      pool.ParallelFor(1000, [&](int64_t item) {
        ++num_run;
        if (item % 100 == 50) {
          throw std::runtime_error("item " + std::to_string(item));
        }
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "item 50");
    }
    EXPECT_LT(num_run, 1000);
    std::atomic<int> after = 0;
    pool.ParallelFor(10, [&](int64_t) { ++after; });
    EXPECT_EQ(after, 10);
  }
}

TEST(ThreadPool, TheFailureOfTheSmallestItemWins) {
  ThreadPool pool(2);
  std::barrier both(2);
  try {
    pool.ParallelFor(2, [&](int64_t item) {
      both.arrive_and_wait();
      throw std::runtime_error(std::to_string(item));
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "0");
  }
}

TEST(ThreadPool, ALoopInsideAnItemRunsInline) {
  ThreadPool pool(3);
  std::atomic<int> num_inner = 0;
  pool.ParallelFor(6, [&](int64_t) {
    const auto outer = std::this_thread::get_id();
    pool.ParallelFor(4, [&](int64_t) {
      EXPECT_EQ(std::this_thread::get_id(), outer);
      ++num_inner;
    });
  });
  EXPECT_EQ(num_inner, 24);
}

TEST(ThreadPool, SeveralCallersTakeTurns) {
  ThreadPool pool(2);
  std::atomic<int> num_run = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        pool.ParallelFor(20, [&](int64_t) { ++num_run; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(num_run, 3 * 50 * 20);
}

TEST(ThreadPoolDeathTest, SaysWhereTheSystemStartsNoMoreThreads) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer needs the memory that the test takes away";
#endif
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        testutil::RefuseThreads();
        try {
          ThreadPool pool(4);
        } catch (const Error& error) {
          std::_Exit(error.code() == ErrorCode::kResourceExhausted ? 0 : 1);
        }
        std::_Exit(2);
      },
      testing::ExitedWithCode(0), "");
}

TEST(ThreadPool, NeedsAThread) {
  for (const int num_threads : {0, -3}) {
    try {
      ThreadPool pool(num_threads);
      ADD_FAILURE() << "accepted " << num_threads;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    }
  }
}

// The child has the pool and none of its threads.
TEST(ThreadPool, AForkedProcessLoopsAloneAndEndsInPeace) {
  auto pool = std::make_unique<ThreadPool>(3);
  pool->ParallelFor(100, [](int64_t) {});
  const pid_t child = ::fork();
  if (child == 0) {
    // A hang is a death by the alarm.
    ::alarm(60);
    int64_t sum = 0;
    pool->ParallelFor(10, [&](int64_t item) { sum += item; });
    pool.reset();
    ::_exit(sum == 45 ? 7 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  std::atomic<int> count = 0;
  pool->ParallelFor(100, [&](int64_t) { ++count; });
  EXPECT_EQ(count, 100);
}

}  // namespace
}  // namespace muonstore
