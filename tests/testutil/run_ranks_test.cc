#include "tests/testutil/run_ranks.h"

#include <poll.h>
#include <sys/syscall.h>
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

const std::array<int, 2>& Pipe() {
  static const std::array<int, 2> ends = [] {
    std::array<int, 2> both{};
    EXPECT_EQ(::pipe(both.data()), 0);
    return both;
  }();
  return ends;
}

// Rank 0 ends well; rank 1 goes on until it has, as rank 0 would be killed if
// it were the last.
void EndWell(int32_t rank) {
  const std::array<int, 2>& ends = Pipe();
  pid_t pid = ::getpid();
  if (rank == 0) {
    EXPECT_EQ(::write(ends[1], &pid, sizeof(pid)), sizeof(pid));
    return;
  }
  EXPECT_EQ(::read(ends[0], &pid, sizeof(pid)), sizeof(pid));
  pollfd ended{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, -1), 1);
}

TEST(RunRanks, ADeathThatIsDueAndDoesNotComeIsAFailure) {
  (void)Pipe();  // Before the ranks start.
  EXPECT_NONFATAL_FAILURE(RunRanks(2, EndWell, {.killed = {0}}), "SIGKILL due");
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
