// Work of all ranks at once: it ends for all or fails for all.

#include "src/checkpoint/together.h"

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/store/store_ranks.h"

namespace muonstore {
namespace {

TEST(RunTogether, EndsWhenAllHaveEnded) {
  testutil::RunConnectedRanks(3, [](const auto& ranks) {
    bool ran = false;
    EXPECT_FALSE(
        RunTogether(*ranks, [&](const StopFlag&) { ran = true; }).has_value());
    EXPECT_TRUE(ran);
  });
}

// The other ranks' parts would never end by themselves.
TEST(RunTogether, AFailureStopsTheOthers) {
  testutil::RunConnectedRanks(3, [](const auto& ranks) {
    const auto error = RunTogether(*ranks, [&](const StopFlag& stop) {
      if (ranks->rank() == 2) throw Error(ErrorCode::kDataLoss, "mine");
      while (!stop) std::this_thread::yield();
      ThrowIfStopped(stop);
    });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kDataLoss);
    EXPECT_EQ(error->message(),
              ranks->rank() == 2 ? "mine" : "on rank 2: mine");
  });
}

TEST(RunTogether, AnyExceptionIsAnErrorOfAll) {
  testutil::RunConnectedRanks(2, [](const auto& ranks) {
    const auto error = RunTogether(*ranks, [&](const StopFlag&) {
      if (ranks->rank() == 1) throw std::runtime_error("strange");
    });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kInternal);
    EXPECT_THAT(error->message(), testing::HasSubstr("strange"));
  });
}

// A part that takes longer than the timeout is no rank that hangs.
TEST(RunTogether, ALongPartIsNoHang) {
  const std::string rendezvous = testutil::UniqueRendezvous();
  testutil::RunRanks(2, [&](int32_t rank) {
    constexpr std::chrono::milliseconds kTimeout{1000};
    const auto ranks = ConnectSharedMemory({.rank = rank,
                                            .size = 2,
                                            .rendezvous = rendezvous,
                                            .timeout = kTimeout});
    const auto error = RunTogether(*ranks, [&](const StopFlag& stop) {
      const auto start = std::chrono::steady_clock::now();
      while (rank == 1 && !stop &&
             std::chrono::steady_clock::now() - start < 2 * kTimeout) {
        std::this_thread::yield();
      }
    });
    EXPECT_FALSE(error.has_value());
  });
}

}  // namespace
}  // namespace muonstore
