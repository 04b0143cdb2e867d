#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <vector>

#include "muonstore/tier.h"
#include "tests/conformance/check.h"
#include "tests/conformance/communicator_checks.h"

namespace muonstore::conformance {
namespace {

using std::chrono_literals::operator""s;

// For faults that are noticed without a timeout.
constexpr auto kLong = 60s;
// For those that are not.
constexpr auto kShort = 2s;

bool IsLast(const Communicator& comm) { return comm.rank() == comm.size() - 1; }

// Broken once is broken for good, in the same words.
void CheckBroken(Communicator& comm, const std::function<void()>& first_call) {
  const std::string reason = CheckThrows(ErrorCode::kUnavailable, first_call);
  const auto again = [&](const std::function<void()>& call) {
    CheckThat(CheckThrows(ErrorCode::kUnavailable, call) == reason,
              "another reason");
  };
  const auto arena = MakeSharedHostTier()->CreateArena(
      {.name = "late", .block_bytes = {10}, .pinning = Pinning::kOff});
  std::array<int64_t, 1> value{};
  again([&] { comm.Barrier(); });
  again([&] { comm.Exchange({})->Wait(); });
  again([&] { comm.AllReduce(value, ReduceOp::kMax); });
  again([&] { comm.Publish(*arena); });
  again([&] { (void)comm.Duplicate(); });
}

// A buffer for each pair, one after the other.
struct Buffers {
  explicit Buffers(const Communicator& comm, size_t bytes)
      : sent(bytes, std::byte{7}),
        received(bytes * static_cast<size_t>(comm.size())) {
    for (int32_t peer = 0; peer < comm.size(); ++peer) {
      plan.sends.push_back({peer, sent});
      plan.receives.push_back(
          {peer, std::span(received).subspan(static_cast<size_t>(peer) * bytes,
                                             bytes)});
    }
  }

  std::vector<std::byte> sent;
  std::vector<std::byte> received;
  ExchangePlan plan;
};

void SumsThatDiffer(const Connect& connect) {
  const auto comm = connect(kLong);
  Buffers buffers(*comm, 5000);
  if (comm->rank() == 0) {
    auto& data = buffers.plan.sends[1].data;
    data = data.first(data.size() - 1);
  }
  CheckBroken(*comm, [&] { comm->Exchange(buffers.plan)->Wait(); });
}

void OneExpectsWhatNobodySends(const Connect& connect) {
  const auto comm = connect(kLong);
  std::array<std::byte, 3> bytes{};
  ExchangePlan plan;
  if (IsLast(*comm)) {
    plan.receives.push_back({0, bytes});
  }
  CheckBroken(*comm, [&] { comm->Exchange(plan)->Wait(); });
}

void DifferentCalls(const Connect& connect) {
  const auto comm = connect(kLong);
  CheckBroken(*comm, [&] {
    if (IsLast(*comm)) {
      comm->Barrier();
    } else {
      comm->Exchange({})->Wait();
    }
  });
}

void AnotherOrderOfCalls(const Connect& connect) {
  const auto comm = connect(kLong);
  std::array<int64_t, 2> values{};
  std::array<std::byte, 2> bytes{};
  CheckBroken(*comm, [&] {
    if (comm->rank() == 0) {
      comm->AllReduce(values, ReduceOp::kSum);
      comm->Broadcast(bytes, 0);
    } else {
      comm->Broadcast(bytes, 0);
      comm->AllReduce(values, ReduceOp::kSum);
    }
  });
}

void ReductionsOfDifferentSizes(const Connect& connect) {
  const auto comm = connect(kLong);
  std::vector<int64_t> values(IsLast(*comm) ? 3 : 4);
  CheckBroken(*comm, [&] { comm->AllReduce(values, ReduceOp::kSum); });
}

void DifferentOperations(const Connect& connect) {
  const auto comm = connect(kLong);
  std::array<int64_t, 2> values{};
  CheckBroken(*comm, [&] {
    comm->AllReduce(values, IsLast(*comm) ? ReduceOp::kSum : ReduceOp::kMax);
  });
}

void DifferentRoots(const Connect& connect) {
  const auto comm = connect(kLong);
  std::array<std::byte, 2> bytes{};
  CheckBroken(*comm, [&] { comm->Broadcast(bytes, IsLast(*comm) ? 1 : 0); });
}

void OneClosesAndTheOthersGoOn(const Connect& connect) {
  auto comm = connect(kShort);
  comm->Barrier();
  if (IsLast(*comm)) {
    comm.reset();
    return;
  }
  CheckBroken(*comm, [&] { comm->Barrier(); });
}

void OneDiesBeforeACall(const Connect& connect) {
  const auto comm = connect(kLong);
  comm->Barrier();
  if (IsLast(*comm)) {
    ::raise(SIGKILL);
  }
  CheckBroken(*comm, [&] { comm->Barrier(); });
}

// So much that no communicator moves it at once.
size_t LongBytes(const Communicator& comm) {
  return (size_t{48} << 20) / static_cast<size_t>(comm.size());
}

// Once its first bytes have come, of many.
void OneDiesInAnExchange(const Connect& connect) {
  const auto comm = connect(kLong);
  Buffers buffers(*comm, LongBytes(*comm));
  comm->Barrier();
  const auto pending = comm->Exchange(buffers.plan);
  if (IsLast(*comm)) {
    AwaitOverwrite(buffers.received[0], std::byte{0});
    ::raise(SIGKILL);
  }
  CheckBroken(*comm, [&] { pending->Wait(); });
}

void OneDiesWithCallsUnderWay(const Connect& connect) {
  auto comm = connect(kLong);
  Buffers buffers(*comm, 100'000);
  comm->Barrier();
  if (IsLast(*comm)) {
    ::raise(SIGKILL);
  }
  std::vector<PendingPtr> pending;
  for (int i = 0; i < 4; ++i) {
    pending.push_back(comm->Exchange(buffers.plan));
  }
  // Nobody waits: the destructors must come through.
  comm.reset();
  CheckThrows(ErrorCode::kUnavailable, [&] { pending[3]->Wait(); });
}

void OneHangs(const Connect& connect) {
  const auto comm = connect(kShort);
  comm->Barrier();
  while (IsLast(*comm)) {
    ::pause();
  }
  CheckBroken(*comm, [&] { comm->Barrier(); });
}

void OneHangsInAnExchange(const Connect& connect) {
  const auto comm = connect(kShort);
  Buffers buffers(*comm, LongBytes(*comm));
  comm->Barrier();
  const auto pending = comm->Exchange(buffers.plan);
  if (IsLast(*comm)) {
    AwaitOverwrite(buffers.received[0], std::byte{0});
    ::raise(SIGSTOP);
  }
  CheckBroken(*comm, [&] { pending->Wait(); });
}

void CheckAborted(Communicator& comm, const std::function<void()>& first_call) {
  const std::string reason = CheckThrows(ErrorCode::kUnavailable, first_call);
  const std::string expected =
      "rank " + std::to_string(comm.size() - 1) + " aborted: the disk is full";
  CheckThat(reason.find(expected) != std::string::npos, reason);
  CheckBroken(comm, [&] { comm.Barrier(); });
}

void OneAbortsBeforeACall(const Connect& connect) {
  const auto comm = connect(kLong);
  comm->Barrier();
  if (IsLast(*comm)) {
    comm->Abort("the disk is full");
    // The first reason counts.
    comm->Abort("a late excuse");
  }
  CheckAborted(*comm, [&] { comm->Barrier(); });
}

// The others wait for bytes that do not come.
void OneAbortsWhileTheOthersWait(const Connect& connect) {
  const auto comm = connect(kLong);
  Buffers buffers(*comm, 100'000);
  comm->Barrier();
  if (IsLast(*comm)) {
    comm->Abort("the disk is full");
  }
  const auto first = comm->Exchange(buffers.plan);
  const auto second = comm->Exchange(buffers.plan);
  CheckAborted(*comm, [&] { second->Wait(); });
}

// Its bytes may all have come by then; what follows fails.
void OneAbortsInAnExchange(const Connect& connect) {
  const auto comm = connect(kLong);
  Buffers buffers(*comm, LongBytes(*comm));
  comm->Barrier();
  const auto pending = comm->Exchange(buffers.plan);
  if (IsLast(*comm)) {
    AwaitOverwrite(buffers.received[0], std::byte{0});
    comm->Abort("the disk is full");
  }
  CheckAborted(*comm, [&] {
    pending->Wait();
    comm->Barrier();
  });
}

void ADuplicateOutlivesAnAbort(const Connect& connect) {
  const auto comm = connect(kLong);
  const auto duplicate = comm->Duplicate();
  if (IsLast(*comm)) {
    comm->Abort("the disk is full");
  }
  CheckAborted(*comm, [&] { comm->Barrier(); });
  std::array<int64_t, 1> ranks = {1};
  duplicate->AllReduce(ranks, ReduceOp::kSum);
  CheckThat(ranks[0] == comm->size(), "the duplicate is broken, too");
}

}  // namespace

std::vector<CommunicatorCheck> FaultChecks() {
  return {
      {"OneAbortsBeforeACall", &OneAbortsBeforeACall},
      {"OneAbortsWhileTheOthersWait", &OneAbortsWhileTheOthersWait},
      {"OneAbortsInAnExchange", &OneAbortsInAnExchange},
      {"ADuplicateOutlivesAnAbort", &ADuplicateOutlivesAnAbort},
      {"SumsThatDiffer", &SumsThatDiffer, 2},
      {"OneExpectsWhatNobodySends", &OneExpectsWhatNobodySends, 2},
      {"DifferentCalls", &DifferentCalls, 2},
      {"AnotherOrderOfCalls", &AnotherOrderOfCalls, 2},
      {"ReductionsOfDifferentSizes", &ReductionsOfDifferentSizes, 2},
      {"DifferentOperations", &DifferentOperations, 2},
      {"DifferentRoots", &DifferentRoots, 2},
      {"OneClosesAndTheOthersGoOn", &OneClosesAndTheOthersGoOn, 2},
      {"OneDiesBeforeACall", &OneDiesBeforeACall, 2, LastRank::kDies},
      {"OneDiesInAnExchange", &OneDiesInAnExchange, 2, LastRank::kDies},
      {"OneDiesWithCallsUnderWay", &OneDiesWithCallsUnderWay, 2,
       LastRank::kDies},
      {"OneHangs", &OneHangs, 2, LastRank::kHangs},
      {"OneHangsInAnExchange", &OneHangsInAnExchange, 2, LastRank::kHangs},
  };
}

}  // namespace muonstore::conformance
