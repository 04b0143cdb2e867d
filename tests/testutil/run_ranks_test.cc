#include "tests/testutil/run_ranks.h"

#include <unistd.h>

#include <array>
#include <csignal>
#include <stdexcept>

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

namespace muonstore::testutil {
namespace {

void FailAsRankOne(int32_t rank) {
  if (rank == 1) {
    throw std::runtime_error("no luck");
  }
}

TEST(RunRanks, RunsEachRankInAProcessOfItsOwn) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t parent = ::getpid();
  RunRanks(3, [&](int32_t rank) {
    EXPECT_NE(::getpid(), parent);
    const char byte = static_cast<char>('a' + rank);
    EXPECT_EQ(::write(ends[1], &byte, 1), 1);
  });
  std::array<char, 4> bytes{};
  EXPECT_EQ(::read(ends[0], bytes.data(), bytes.size()), 3);
  EXPECT_EQ(bytes[0] + bytes[1] + bytes[2], 'a' + 'b' + 'c');
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(RunRanks, CarriesTheTextOfAFailedAssertion) {
  const auto outcomes =
      TryRunRanks(2, [](int32_t rank) { EXPECT_EQ(rank, 0) << "odd one out"; });
  EXPECT_TRUE(outcomes[0].ok());
  EXPECT_EQ(outcomes[1].exit_code, 1);
  EXPECT_NE(outcomes[1].failures.find("odd one out"), std::string::npos);
}

// GoogleTest's own check intercepts assertions in the forked rank as well, so
// that this rank fails by an exception.
TEST(RunRanks, AFailedRankFailsTheTest) {
  EXPECT_NONFATAL_FAILURE(RunRanks(2, FailAsRankOne),
                          "rank 1 of 2 ended with exit code 1\nexception: no "
                          "luck");
}

TEST(RunRanks, KillsAndNamesARankThatIsNotDoneInTime) {
  const auto outcomes =
      TryRunRanks(2,
                  [](int32_t rank) {
                    while (rank == 0) {
                      ::pause();
                    }
                  },
                  {.timeout = std::chrono::milliseconds(200)});
  EXPECT_TRUE(outcomes[0].timed_out);
  EXPECT_EQ(outcomes[0].signal, SIGKILL);
  EXPECT_TRUE(outcomes[1].ok());
}

TEST(RunRanks, ADeathThatIsDueIsNoFailure) {
  RunRanks(2,
           [](int32_t rank) {
             if (rank == 1) {
               ::raise(SIGKILL);
             }
           },
           {.killed = {1}});
}

TEST(RunRanks, ADeathThatIsDueAndDoesNotComeIsAFailure) {
  EXPECT_NONFATAL_FAILURE(RunRanks(1, [](int32_t) {}, {.killed = {0}}),
                          "SIGKILL due");
}

TEST(RunRanks, KillsARankThatHangsAsItShouldOnceTheOthersAreDone) {
  RunRanks(2,
           [](int32_t rank) {
             while (rank == 1) {
               ::pause();
             }
           },
           {.killed = {1}});
}

TEST(RunRanks, GivesTheProcessIds) {
  RunRanks(2,
           [](int32_t) {
             while (true) {
               ::pause();
             }
           },
           {.killed = {0, 1}, .on_started = [](const std::vector<int>& pids) {
              for (const int pid : pids) {
                ::kill(pid, SIGKILL);
              }
            }});
}

TEST(RunRankThreads, JoinsThemAndReportsExceptions) {
  std::array<int, 3> seen{};
  RunRankThreads(
      3, [&](int32_t rank) { seen[static_cast<size_t>(rank)] = rank + 1; });
  EXPECT_EQ(seen, (std::array<int, 3>{1, 2, 3}));
}

TEST(UniqueRendezvous, DiffersAtEachCall) {
  EXPECT_NE(UniqueRendezvous(), UniqueRendezvous());
}

}  // namespace
}  // namespace muonstore::testutil
