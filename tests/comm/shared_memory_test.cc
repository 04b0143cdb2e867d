// What the suite of all communicators cannot see: the words of failures,
// in-place reads, forks, and the order of memory under ThreadSanitizer.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/communicator.h"
#include "muonstore/error.h"
#include "muonstore/tier.h"
#include "src/comm/shared/control_block.h"
#include "src/comm/shared/shared_memory_engine.h"
#include "tests/conformance/check.h"
#include "tests/conformance/planned_exchange.h"
#include "tests/testutil/run_ranks.h"

namespace muonstore {
namespace {

using conformance::PlannedExchange;
using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;

std::unique_ptr<Communicator> Connect(
    int32_t rank, int32_t size, const std::string& name,
    milliseconds timeout = milliseconds(60'000)) {
  return ConnectSharedMemory(
      {.rank = rank, .size = size, .rendezvous = name, .timeout = timeout});
}

std::string FailureOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(SharedMemory, ADeadRankIsNamedWithWhatItWasDoing) {
  const std::string name = testutil::UniqueRendezvous();
  testutil::RunRanks(
      4,
      [&](int32_t rank) {
        const auto comm = Connect(rank, 4, name);
        comm->Barrier();
        if (rank == 2) {
          ::raise(SIGKILL);
        }
        EXPECT_THAT(FailureOf([&] { comm->Exchange({})->Wait(); }),
                    MatchesRegex("rank 2 \\(pid [0-9]+\\) died before exchange "
                                 "2"));
      },
      {.killed = {2}});
}

TEST(SharedMemory, AHungRankIsNamedAndNotThoseThatWaitForIt) {
  const std::string name = testutil::UniqueRendezvous();
  testutil::RunRanks(
      4,
      [&](int32_t rank) {
        const auto comm = Connect(rank, 4, name, milliseconds(2000));
        // Rank 1 stops in an exchange that rank 3 alone waits for; the others
        // are in the call after it.
        std::vector<std::byte> data(20'000'000);
        ExchangePlan plan;
        if (rank == 1) {
          plan.receives.push_back({3, data});
        }
        if (rank == 3) {
          plan.sends.push_back({1, data});
        }
        if (rank == 1) {
          data[0] = std::byte{1};
        }
        const auto pending = comm->Exchange(plan);
        if (rank == 1) {
          conformance::AwaitOverwrite(data[0], std::byte{1});
          ::raise(SIGSTOP);
        }
        EXPECT_THAT(FailureOf([&] {
                      pending->Wait();
                      comm->Barrier();
                    }),
                    AllOf(HasSubstr("did not answer for 2000 ms"),
                          testing::StartsWith("rank 1 (pid ")));
      },
      {.killed = {1}});
}

TEST(SharedMemory, ARankThatClosesIsNamed) {
  const std::string name = testutil::UniqueRendezvous();
  testutil::RunRankThreads(3, [&](int32_t rank) {
    auto comm = Connect(rank, 3, name);
    if (rank == 1) {
      comm.reset();
      return;
    }
    EXPECT_THAT(FailureOf([&] { comm->Barrier(); }),
                MatchesRegex("rank 1 \\(pid [0-9]+\\) closed its communicator "
                             "before barrier 1"));
  });
}

// Shared between forked ranks.
struct Counter {
  Counter() {
    memory = ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  }
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;
  ~Counter() { ::munmap(memory, sizeof(std::atomic<int>)); }
  std::atomic<int>& value() { return *static_cast<std::atomic<int>*>(memory); }

  void* memory;
};

TEST(SharedMemory, NobodyPassesABarrierBeforeAllHaveCome) {
  const std::string name = testutil::UniqueRendezvous();
  Counter counter;
  testutil::RunRanks(4, [&](int32_t rank) {
    const auto comm = Connect(rank, 4, name);
    for (int round = 1; round <= 200; ++round) {
      ++counter.value();
      comm->Barrier();
      ASSERT_EQ(counter.value(), 4 * round);
      comm->Barrier();
    }
  });
}

// The bounce memory of the control block, as far as pages of it are there.
uint64_t ResidentBytesOfControl() {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  uint64_t bytes = 0;
  while (std::getline(smaps, line)) {
    if (line.find("-") < line.find(" ")) {
      inside = line.find("muonstore control") != std::string::npos;
    } else if (inside && line.starts_with("Rss:")) {
      bytes += std::stoull(line.substr(4)) * 1024;
    }
  }
  return bytes;
}

TEST(SharedMemory, PublishedMemoryIsReadInPlace) {
  const std::string name = testutil::UniqueRendezvous();
  testutil::RunRanks(2, [&](int32_t rank) {
    const auto comm = Connect(rank, 2, name);
    constexpr uint64_t kBytes = 10'000'000;
    const auto arena = MakeSharedHostTier()->CreateArena(
        {.name = "big", .block_bytes = {kBytes}, .pinning = Pinning::kOff});
    comm->Publish(*arena);
    const uint64_t before = ResidentBytesOfControl();
    std::vector<std::byte> in(kBytes);
    const ExchangePlan in_place = {{{1 - rank, arena->memory(0, 0)}},
                                   {{1 - rank, in}}};
    comm->Exchange(in_place)->Wait();
    EXPECT_LT(ResidentBytesOfControl(), before + 40'000);
    // The same bytes from elsewhere go through it.
    const std::vector<std::byte> copy(kBytes);
    const ExchangePlan bounced = {{{1 - rank, copy}}, {{1 - rank, in}}};
    comm->Exchange(bounced)->Wait();
    EXPECT_GT(ResidentBytesOfControl(), before + 200'000);
  });
}

TEST(SharedMemory, AForkedCopyOfARankDisturbsNobody) {
  const std::string name = testutil::UniqueRendezvous();
  testutil::RunRanks(2, [&](int32_t rank) {
    auto comm = Connect(rank, 2, name);
    comm->Barrier();
    const pid_t child = ::fork();
    if (child == 0) {
      int code = 1;
      try {
        comm->Barrier();
      } catch (const Error& error) {
        code = error.code() == ErrorCode::kInvalidArgument ? 7 : 2;
      }
      comm.reset();
      ::_exit(code);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 7);
    comm->Barrier();
  });
}

// Ranks over one mapping of the control block: with one address for each word
// ThreadSanitizer can judge the order of the channels' memory.
TEST(SharedMemory, ChannelsOrderTheirMemory) {
  constexpr int32_t kSize = 3;
  const auto control =
      std::make_shared<tier::SharedMemory>(tier::SharedMemory::Create(
          "control", comm::ControlBlock::SizeBytes(kSize),
          tier::Access::kWrite));
  const auto peers =
      std::make_shared<comm::PeerWatch>(std::vector<comm::Peer>(kSize));
  testutil::RunRankThreads(kSize, [&](int32_t rank) {
    const auto comm = comm::MakeOrderedCommunicator(
        comm::MakeSharedMemoryEngine({.rank = rank,
                                      .size = kSize,
                                      .timeout = milliseconds(60'000),
                                      .control = control,
                                      .peers = peers,
                                      .links = {}}));
    for (uint64_t seed = 0; seed < 6; ++seed) {
      const PlannedExchange exchange(rank, kSize, {seed, 700'000, 40});
      comm->Exchange(exchange.plan())->Wait();
      exchange.CheckReceived();
      std::array<int64_t, 3> values = {rank, 1, -rank};
      comm->AllReduce(values, ReduceOp::kSum);
      EXPECT_EQ(values, (std::array<int64_t, 3>{3, 3, -3}));
    }
  });
}

}  // namespace
}  // namespace muonstore
