#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <latch>
#include <limits>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/communicator.h"
#include "muonstore/error.h"
#include "muonstore/tier.h"
#include "src/comm/shared/local_socket.h"
#include "tests/testutil/run_ranks.h"

namespace muonstore {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

SharedMemoryOptions Place(int32_t rank, int32_t size, const std::string& name,
                          milliseconds timeout = milliseconds(60'000)) {
  return {.rank = rank, .size = size, .rendezvous = name, .timeout = timeout};
}

std::string Refusal(ErrorCode code, const SharedMemoryOptions& options) {
  try {
    (void)ConnectSharedMemory(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Rendezvous, RefusesOptionsThatMakeNoSense) {
  const auto refused = [](const SharedMemoryOptions& options) {
    return Refusal(ErrorCode::kInvalidArgument, options);
  };
  EXPECT_THAT(refused(Place(0, 0, "x")), HasSubstr("rank 0 of 0"));
  EXPECT_THAT(refused(Place(2, 2, "x")), HasSubstr("rank 2 of 2"));
  EXPECT_THAT(refused(Place(-1, 2, "x")), HasSubstr("rank -1 of 2"));
  EXPECT_THAT(refused(Place(0, 129, "x")), HasSubstr("1 to 128 ranks"));
  EXPECT_THAT(refused(Place(0, 1, std::string(81, 'x'))),
              HasSubstr("has 81 bytes"));
  EXPECT_THAT(refused(Place(0, 1, "x", milliseconds(0))), HasSubstr("timeout"));
  EXPECT_THAT(refused(Place(0, std::numeric_limits<int32_t>::max(), "x")),
              HasSubstr("1 to 128 ranks"));
}

// In nanoseconds they would be negative: every peer would be late.
TEST(Rendezvous, RefusesTimeoutsThatNoClockCounts) {
  for (const milliseconds timeout :
       {milliseconds::max(), milliseconds(9'300'000'000'000),
        kMaxCommunicatorTimeout + milliseconds(1)}) {
    EXPECT_THAT(
        Refusal(ErrorCode::kInvalidArgument, Place(0, 1, "x", timeout)),
        AllOf(HasSubstr("at most a year"), HasSubstr("31536000000 ms")));
  }
}

TEST(Rendezvous, TakesTheLongestTimeout) {
  const std::string name = testutil::UniqueRendezvous();
  testutil::RunRankThreads(2, [&](int32_t rank) {
    ConnectSharedMemory(Place(rank, 2, name, kMaxCommunicatorTimeout))
        ->Barrier();
  });
}

TEST(Rendezvous, TakesTheLongestName) {
  std::string name = testutil::UniqueRendezvous();
  name.resize(80, 'x');
  testutil::RunRankThreads(2, [&](int32_t rank) {
    ConnectSharedMemory(Place(rank, 2, name))->Barrier();
  });
}

// Rank 0 names who is missing, to those who came as well.
TEST(Rendezvous, ARankThatDoesNotComeIsNamedOnAllThatDid) {
  const std::string name = testutil::UniqueRendezvous();
  testutil::RunRankThreads(5, [&](int32_t rank) {
    if (rank == 2 || rank == 3) {
      return;
    }
    // The others wait longer: they hear it from rank 0.
    const milliseconds timeout(rank == 0 ? 1000 : 60'000);
    EXPECT_THAT(Refusal(ErrorCode::kUnavailable, Place(rank, 5, name, timeout)),
                AllOf(HasSubstr("did not come"), HasSubstr("2-3")));
  });
}

TEST(Rendezvous, WithoutRankZeroTheOthersGiveUp) {
  EXPECT_THAT(
      Refusal(ErrorCode::kUnavailable,
              Place(1, 2, testutil::UniqueRendezvous(), milliseconds(50))),
      HasSubstr("did not get through to rank 0"));
}

TEST(Rendezvous, RanksThatCountDifferentlyAreAnErrorOnAll) {
  const std::string name = testutil::UniqueRendezvous();
  testutil::RunRankThreads(2, [&](int32_t rank) {
    const ErrorCode code =
        rank == 0 ? ErrorCode::kInvalidArgument : ErrorCode::kUnavailable;
    EXPECT_THAT(Refusal(code, Place(rank, 2 + rank, name)),
                HasSubstr("rank 1 of 3"));
  });
}

TEST(Rendezvous, ARankThatComesTwiceIsAnErrorOnAll) {
  const std::string name = testutil::UniqueRendezvous();
  // Three ranks are due; rank 1 comes as two.
  testutil::RunRankThreads(3, [&](int32_t rank) {
    const ErrorCode code =
        rank == 0 ? ErrorCode::kInvalidArgument : ErrorCode::kUnavailable;
    EXPECT_THAT(Refusal(code, Place(std::min(rank, 1), 3, name)),
                HasSubstr("ranks twice"));
  });
}

TEST(Rendezvous, ASecondRankZeroGivesUp) {
  const std::string name = testutil::UniqueRendezvous();
  const os::FileDescriptor other = comm::ListenAt(name);
  EXPECT_THAT(
      Refusal(ErrorCode::kUnavailable, Place(0, 2, name, milliseconds(50))),
      HasSubstr("another rank 0"));
}

// A listener of an earlier job, which closes instead of answering.
TEST(Rendezvous, ALateGuestOfAnotherJobTriesAgain) {
  const std::string name = testutil::UniqueRendezvous();
  os::FileDescriptor earlier = comm::ListenAt(name);
  std::thread guest([&] { ConnectSharedMemory(Place(1, 2, name))->Barrier(); });
  os::FileDescriptor accepted;
  while (!accepted.valid()) {
    accepted = comm::AcceptFrom(earlier);
  }
  accepted.Close();
  earlier.Close();
  ConnectSharedMemory(Place(0, 2, name))->Barrier();
  guest.join();
}

// Whoever says something else, or nothing, does not keep the ranks apart.
TEST(Rendezvous, StrangersAreTurnedAway) {
  const std::string name = testutil::UniqueRendezvous();
  std::latch strangers_came(1);
  std::thread host([&] { ConnectSharedMemory(Place(0, 2, name))->Barrier(); });
  std::thread guest([&] {
    strangers_came.wait();
    ConnectSharedMemory(Place(1, 2, name))->Barrier();
  });
  os::FileDescriptor silent;
  while (!silent.valid()) {
    silent = comm::ConnectTo(name);
  }
  const os::FileDescriptor loud = comm::ConnectTo(name);
  std::vector<std::byte> noise(16, std::byte{0x55});
  EXPECT_TRUE(comm::SendMessage(loud, noise, {}));
  const os::FileDescriptor longer = comm::ConnectTo(name);
  noise.resize(500);
  EXPECT_TRUE(comm::SendMessage(longer, noise, {}));
  strangers_came.count_down();
  host.join();
  guest.join();
}

std::vector<std::string> Listing(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

bool SocketIsListed(const std::string& name) {
  std::ifstream sockets("/proc/net/unix");
  std::string line;
  while (std::getline(sockets, line)) {
    if (line.find("muonstore/" + name) != std::string::npos) {
      return true;
    }
  }
  return false;
}

TEST(Rendezvous, LeavesNothingWhenRanksMeet) {
  const std::string name = testutil::UniqueRendezvous();
  const size_t files_before = Listing("/proc/self/fd").size();
  testutil::RunRankThreads(3, [&](int32_t rank) {
    const auto comm = ConnectSharedMemory(Place(rank, 3, name));
    comm->Barrier();
    comm->Duplicate()->Barrier();
  });
  EXPECT_FALSE(SocketIsListed(name));
  EXPECT_EQ(Listing("/proc/self/fd").size(), files_before);
}

// The files and the shared memory of this process that have a path.
std::vector<std::string> NamedFiles() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    names.push_back(std::filesystem::read_symlink(entry, gone).string());
  }
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    if (line.find("s ") != std::string::npos &&
        line.find('/') != std::string::npos) {
      names.push_back(line.substr(line.find('/')));
    }
  }
  std::erase_if(names, [](const std::string& name) {
    return !name.starts_with('/') || name.starts_with("/memfd:") ||
           name.starts_with("/proc/");
  });
  std::ranges::sort(names);
  return names;
}

void KillAll(const std::vector<int>& pids) {
  for (const int pid : pids) {
    ::kill(pid, SIGKILL);
  }
}

TEST(Rendezvous, LeavesNothingWhenRanksAreKilledAtTheDoor) {
  const std::string name = testutil::UniqueRendezvous();
  // The third rank never comes.
  testutil::RunRanks(
      2, [&](int32_t rank) { (void)ConnectSharedMemory(Place(rank, 3, name)); },
      {.killed = {0, 1}, .on_started = [&](const std::vector<int>& pids) {
         while (!SocketIsListed(name)) {
         }
         KillAll(pids);
       }});
  EXPECT_FALSE(SocketIsListed(name));
}

TEST(Rendezvous, LeavesNothingWhenRanksAreKilledAtWork) {
  const std::string name = testutil::UniqueRendezvous();
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  testutil::RunRanks(
      2,
      [&](int32_t rank) {
        const auto files_before = NamedFiles();
        const auto comm = ConnectSharedMemory(Place(rank, 2, name));
        const auto arena = MakeSharedHostTier()->CreateArena(
            {.name = "left", .block_bytes = {100'000}});
        comm->Publish(*arena);
        // What has no name cannot be left behind.
        EXPECT_EQ(NamedFiles(), files_before);
        EXPECT_EQ(::write(ends[1], "x", 1), 1);
        while (true) {
          comm->Barrier();
        }
      },
      {.killed = {0, 1}, .on_started = [&](const std::vector<int>& pids) {
         std::array<char, 1> both{};
         EXPECT_EQ(::read(ends[0], both.data(), 1), 1);
         EXPECT_EQ(::read(ends[0], both.data(), 1), 1);
         KillAll(pids);
       }});
  EXPECT_FALSE(SocketIsListed(name));
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace muonstore
