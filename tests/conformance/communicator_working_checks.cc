#include <algorithm>
#include <array>
#include <limits>
#include <thread>

#include "muonstore/tier.h"
#include "src/base/str.h"
#include "tests/conformance/check.h"
#include "tests/conformance/communicator_checks.h"
#include "tests/conformance/planned_exchange.h"

namespace muonstore::conformance {
namespace {

using std::chrono_literals::operator""s;

// Nobody is gone: only a fault of the communicator takes so long.
constexpr auto kTimeout = 60s;

PlannedExchange Planned(const Communicator& comm, const ExchangeShape& shape,
                        std::span<std::byte> arena_memory = {}) {
  return {comm.rank(), comm.size(), shape, arena_memory};
}

void ExchangeAndCheck(Communicator& comm, const ExchangeShape& shape) {
  const PlannedExchange exchange = Planned(comm, shape);
  comm.Exchange(exchange.plan())->Wait();
  exchange.CheckReceived();
}

void KnowsItsPlace(const Connect& connect) {
  const auto comm = connect(kTimeout);
  std::vector<int64_t> seen(static_cast<size_t>(comm->size()));
  seen[static_cast<size_t>(comm->rank())] = comm->rank() + 1;
  comm->AllReduce(seen, ReduceOp::kSum);
  for (int32_t rank = 0; rank < comm->size(); ++rank) {
    CheckThat(seen[static_cast<size_t>(rank)] == rank + 1, "ranks differ");
  }
  CheckThat(!comm->name().empty(), "no name");
}

void RandomExchanges(const Connect& connect) {
  const auto comm = connect(kTimeout);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    // From single bytes to several times any bounce buffer.
    const uint64_t max_bytes =
        seed % 3 == 0 ? 30 : uint64_t{1} << (8 + seed % 14);
    ExchangeAndCheck(*comm, {seed, max_bytes, 12});
  }
}

void LongPieces(const Connect& connect) {
  const auto comm = connect(kTimeout);
  ExchangeAndCheck(*comm, {77, uint64_t{9} << 20, 1});
}

void ManyShortPieces(const Connect& connect) {
  const auto comm = connect(kTimeout);
  ExchangeAndCheck(*comm, {78, 200'000, 20'000});
}

void NothingToExchange(const Connect& connect) {
  const auto comm = connect(kTimeout);
  comm->Exchange({})->Wait();
  ExchangeAndCheck(*comm, {79, 0, 3});
  CheckThat(comm->received_bytes() == 0, "bytes from nowhere");
}

void SeveralUnderWay(const Connect& connect) {
  const auto comm = connect(kTimeout);
  std::vector<PlannedExchange> exchanges;
  std::vector<PendingPtr> pending;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    exchanges.push_back(Planned(*comm, {100 + seed, 400'000, 5}));
  }
  for (const PlannedExchange& exchange : exchanges) {
    pending.push_back(comm->Exchange(exchange.plan()));
  }
  pending[5]->Wait();
  for (size_t i = 0; i <= 5; ++i) {
    CheckThat(pending[i]->done(), "an earlier exchange is not done");
    exchanges[i].CheckReceived();
  }
  pending[7]->Wait();
  exchanges[6].CheckReceived();
  exchanges[7].CheckReceived();
  comm->Barrier();
}

void ABlockingCallWaitsItsTurn(const Connect& connect) {
  const auto comm = connect(kTimeout);
  const PlannedExchange exchange = Planned(*comm, {200, 300'000, 3});
  const auto pending = comm->Exchange(exchange.plan());
  std::array<int64_t, 1> one = {1};
  comm->AllReduce(one, ReduceOp::kSum);
  CheckThat(one[0] == comm->size(), "wrong sum");
  CheckThat(pending->done(), "the exchange before is not done");
  exchange.CheckReceived();
}

void CountsBytesFromOthers(const Connect& connect) {
  const auto comm = connect(kTimeout);
  uint64_t expected = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const PlannedExchange exchange = Planned(*comm, {300 + seed, 50'000, 4});
    expected += exchange.bytes_from_others();
    comm->Exchange(exchange.plan())->Wait();
    CheckThat(comm->received_bytes() == expected, "wrong count");
  }
}

ArenaOptions ArenaOf(uint64_t bytes) {
  return {.name = "published",
          .block_bytes = {bytes},
          .num_slots = 1,
          .pinning = Pinning::kOff};
}

// Streams of published and of other memory in one exchange; the memory is
// written anew each time.
void ExchangePublished(Tier& tier, const Connect& connect) {
  const auto comm = connect(kTimeout);
  // Sizes differ, and a rank may have nothing.
  const auto bytes = static_cast<uint64_t>(comm->rank()) * 1'300'000;
  const auto first = tier.CreateArena(ArenaOf(bytes));
  const auto second = tier.CreateArena(ArenaOf(6'000'000));
  comm->Publish(*first);
  comm->Publish(*second);
  for (uint64_t round = 0; round < 6; ++round) {
    Arena& arena = round % 2 == 0 ? *first : *second;
    const PlannedExchange exchange =
        Planned(*comm, {400 + round, round < 4 ? 700'000U : 5'500'000U, 6},
                arena.memory(0, 0));
    comm->Exchange(exchange.plan())->Wait();
    exchange.CheckReceived();
  }
  comm->Withdraw(*first);
  // Sends of withdrawn memory are copied.
  const PlannedExchange withdrawn =
      Planned(*comm, {450, 300'000, 6}, first->memory(0, 0));
  comm->Exchange(withdrawn.plan())->Wait();
  withdrawn.CheckReceived();
  comm->Withdraw(*second);
}

void SharedArenas(const Connect& connect) {
  ExchangePublished(*MakeSharedHostTier(), connect);
}

void ArenasThatCannotBeShared(const Connect& connect) {
  ExchangePublished(*MakePinnedHostTier(), connect);
}

void RanksThatPublishDifferentTiers(const Connect& connect) {
  const auto comm = connect(kTimeout);
  const auto tier =
      comm->rank() % 2 == 0 ? MakeSharedHostTier() : MakePinnedHostTier();
  const auto arena = tier->CreateArena(ArenaOf(3'000'000));
  comm->Publish(*arena);
  const PlannedExchange exchange =
      Planned(*comm, {460, 500'000, 3}, arena->memory(0, 0));
  comm->Exchange(exchange.plan())->Wait();
  exchange.CheckReceived();
  comm->Withdraw(*arena);
}

// Values of a rank, extremes included.
std::vector<int64_t> ValuesOf(int32_t rank, size_t count) {
  std::vector<int64_t> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<int64_t>((static_cast<uint64_t>(rank) + 3) *
                                     0x9e3779b97f4a7c15U * (i + 1));
  }
  if (count > 2) {
    values[0] = std::numeric_limits<int64_t>::max();
    values[1] = rank % 2 == 0 ? std::numeric_limits<int64_t>::min() : -1;
  }
  return values;
}

int64_t Combine(ReduceOp op, int64_t a, int64_t b) {
  switch (op) {
    case ReduceOp::kSum:
      return static_cast<int64_t>(static_cast<uint64_t>(a) +
                                  static_cast<uint64_t>(b));
    case ReduceOp::kMin:
      return a < b ? a : b;
    case ReduceOp::kMax:
      return a < b ? b : a;
    case ReduceOp::kBitOr:
      return a | b;
  }
  return 0;
}

void Reductions(const Connect& connect) {
  const auto comm = connect(kTimeout);
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kBitOr}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{50'000}}) {
      std::vector<int64_t> expected = ValuesOf(0, count);
      for (int32_t rank = 1; rank < comm->size(); ++rank) {
        const std::vector<int64_t> other = ValuesOf(rank, count);
        for (size_t i = 0; i < count; ++i) {
          expected[i] = Combine(op, expected[i], other[i]);
        }
      }
      std::vector<int64_t> values = ValuesOf(comm->rank(), count);
      comm->AllReduce(values, op);
      CheckThat(values == expected,
                StrCat("operation ", static_cast<int>(op), " of ", count));
    }
  }
}

std::vector<std::byte> BytesOfRoot(int32_t root, size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(
        (i * 13 + i / 251 + static_cast<size_t>(root) * 71) % 256);
  }
  return bytes;
}

void Broadcasts(const Connect& connect) {
  const auto comm = connect(kTimeout);
  for (int32_t root = 0; root < comm->size(); ++root) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{1'500'001}}) {
      std::vector<std::byte> data = comm->rank() == root
                                        ? BytesOfRoot(root, count)
                                        : std::vector<std::byte>(count);
      comm->Broadcast(data, root);
      CheckThat(data == BytesOfRoot(root, count),
                StrCat(count, " bytes from ", root));
    }
  }
}

// Each on a thread of its own, with traffic of its own.
void DuplicatesAreIndependent(const Connect& connect) {
  auto comm = connect(kTimeout);
  const auto other = comm->Duplicate();
  CheckThat(other->rank() == comm->rank() && other->size() == comm->size(),
            "another place");
  const auto exchange_all = [](Communicator& one, uint64_t first_seed) {
    for (uint64_t seed = first_seed; seed < first_seed + 6; ++seed) {
      ExchangeAndCheck(one, {seed, 200'000, 8});
    }
  };
  std::string failure;
  std::thread thread([&] {
    try {
      exchange_all(*other, 600);
    } catch (const std::exception& error) {
      failure = error.what();
    }
  });
  try {
    exchange_all(*comm, 500);
  } catch (...) {
    thread.join();
    throw;
  }
  thread.join();
  CheckThat(failure.empty(), failure);
  comm->Barrier();
  comm.reset();
  ExchangeAndCheck(*other, {700, 10'000, 3});
  ExchangeAndCheck(*other->Duplicate(), {701, 10'000, 3});
}

// Nothing was said to the peers: the right call may follow.
void BadArgumentsBreakNothing(const Connect& connect) {
  const auto comm = connect(kTimeout);
  const auto arena = MakeSharedHostTier()->CreateArena(ArenaOf(5000));
  std::array<std::byte, 4> bytes{};
  const auto refuse = [](const std::function<void()>& call) {
    CheckThrows(ErrorCode::kInvalidArgument, call);
  };
  refuse([&] { comm->Exchange({{{comm->size(), bytes}}, {}})->Wait(); });
  refuse([&] { comm->Exchange({{}, {{-1, bytes}}})->Wait(); });
  refuse([&] { comm->Exchange({{{comm->rank(), bytes}}, {}})->Wait(); });
  refuse([&] { comm->Broadcast(bytes, comm->size()); });
  refuse([&] { comm->Broadcast(bytes, -1); });
  refuse([&] { comm->Withdraw(*arena); });
  comm->Publish(*arena);
  refuse([&] { comm->Publish(*arena); });
  ExchangeAndCheck(*comm, {800, 1000, 3});
}

void HandlesNeedNoWait(const Connect& connect) {
  const auto comm = connect(kTimeout);
  const PlannedExchange exchange = Planned(*comm, {900, 100'000, 3});
  (void)comm->Exchange(exchange.plan());
  exchange.CheckReceived();
}

}  // namespace

std::vector<CommunicatorCheck> WorkingChecks() {
  return {
      {"KnowsItsPlace", &KnowsItsPlace},
      {"RandomExchanges", &RandomExchanges},
      {"LongPieces", &LongPieces},
      {"ManyShortPieces", &ManyShortPieces},
      {"NothingToExchange", &NothingToExchange},
      {"SeveralUnderWay", &SeveralUnderWay},
      {"ABlockingCallWaitsItsTurn", &ABlockingCallWaitsItsTurn},
      {"CountsBytesFromOthers", &CountsBytesFromOthers},
      {"SharedArenas", &SharedArenas},
      {"ArenasThatCannotBeShared", &ArenasThatCannotBeShared},
      {"RanksThatPublishDifferentTiers", &RanksThatPublishDifferentTiers},
      {"Reductions", &Reductions},
      {"Broadcasts", &Broadcasts},
      {"DuplicatesAreIndependent", &DuplicatesAreIndependent},
      {"BadArgumentsBreakNothing", &BadArgumentsBreakNothing},
      {"HandlesNeedNoWait", &HandlesNeedNoWait},
  };
}

}  // namespace muonstore::conformance
