#include "src/comm/collective_engine.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/comm/reduce.h"

namespace muonstore::comm {
namespace {

// What a rank sends in one all-to-all. Equal on all ranks.
constexpr uint64_t kRoundBytes = uint64_t{16} << 20;

void ThrowIf(const std::optional<std::string>& abort) {
  if (abort) throw Error(ErrorCode::kUnavailable, *abort);
}

size_t Sum(const std::vector<int64_t>& split) {
  return static_cast<size_t>(
      std::accumulate(split.begin(), split.end(), int64_t{0}));
}

// The bytes of each peer's turn.
template <typename Queue>
std::vector<int64_t> SplitTurn(const std::vector<Queue>& queues,
                               uint64_t pair_bytes) {
  std::vector<int64_t> split;
  split.reserve(queues.size());
  for (const Queue& queue : queues) {
    split.push_back(
        static_cast<int64_t>(std::min(queue.left_bytes(), pair_bytes)));
  }
  return split;
}

}  // namespace

void CollectiveEngine::Exchange(const ExchangePlan& plan) {
  Call(CallRecord::ForExchange(plan, size_),
       [&](const auto& records) { Move(plan, NumRounds(records)); });
}

void CollectiveEngine::AllReduce(std::span<int64_t> values, ReduceOp op) {
  Call(Record(CallKind::kAllReduce, static_cast<uint64_t>(op), values.size()),
       [&](const auto& /*records*/) {
         const std::vector<int64_t> all =
             Gather(std::span<const int64_t>(values));
         for (int32_t peer = 0; peer < size_; ++peer) {
           const auto theirs = std::span(all).subspan(
               static_cast<size_t>(peer) * values.size(), values.size());
           if (peer == 0) {
             std::ranges::copy(theirs, values.begin());
           } else {
             Reduce(op, theirs, values);
           }
         }
       });
}

void CollectiveEngine::Broadcast(std::span<std::byte> data, int32_t root) {
  Call(Record(CallKind::kBroadcast, static_cast<uint64_t>(root), data.size()),
       [&](const auto& /*records*/) {
         if (data.empty()) return;
         const SharedBytes shared(data.size());
         std::ranges::copy(data, shared.span().begin());
         BroadcastFrom(root, shared);
         std::ranges::copy(shared.span(), data.begin());
       });
}

void CollectiveEngine::Barrier() {
  Call(Record(CallKind::kBarrier, 0, 0), [](const auto& /*records*/) {});
}

void CollectiveEngine::Publish(Arena& /*arena*/) {
  Call(Record(CallKind::kPublish, 0, 0), [](const auto& /*records*/) {});
}

void CollectiveEngine::Withdraw(Arena& /*arena*/) {
  Call(Record(CallKind::kWithdraw, 0, 0), [](const auto& /*records*/) {});
}

std::unique_ptr<Engine> CollectiveEngine::Duplicate() {
  std::unique_ptr<Engine> duplicate;
  Call(Record(CallKind::kDuplicate, 0, 0),
       [&](const auto& /*records*/) { duplicate = Split(num_duplicates_++); });
  return duplicate;
}

void CollectiveEngine::Call(
    const CallRecord& record,
    const std::function<void(const std::vector<uint64_t>&)>& function) {
  ++call_number_;
  ThrowIf(KnownAbort());
  try {
    const std::vector<uint64_t> records = Gather(record.numbers());
    const size_t length = record.numbers().size();
    const auto disagreement =
        FindDisagreement(call_number_, size_, [&](int32_t peer) {
          return std::span(records).subspan(static_cast<size_t>(peer) * length,
                                            length);
        });
    if (disagreement) {
      throw Error(ErrorCode::kUnavailable, *disagreement);
    }
    function(records);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    // A rank that aborted may be gone by now.
    ThrowIf(LookForAbort());
    throw Error(ErrorCode::kUnavailable,
                StrCat("rank ", rank_, " failed in call ", call_number_, ", ",
                       CallKindName(record.kind()), ", of its process group (",
                       backend_name(), "): ", TextOf(error)));
  }
}

template <typename Number>
std::vector<Number> CollectiveEngine::Gather(std::span<const Number> own) {
  std::vector<Number> all(own.size() * static_cast<size_t>(size_));
  if (own.empty()) return all;
  const SharedBytes mine(own.size_bytes());
  std::ranges::copy(std::as_bytes(own), mine.span().begin());
  const SharedBytes gathered(all.size() * sizeof(Number));
  AllGather(mine, gathered);
  std::ranges::copy(gathered.span(),
                    std::as_writable_bytes(std::span(all)).begin());
  return all;
}

uint64_t CollectiveEngine::PairBytes() const {
  return std::max<uint64_t>(1, kRoundBytes / static_cast<uint64_t>(size_));
}

uint64_t CollectiveEngine::NumRounds(
    const std::vector<uint64_t>& records) const {
  const size_t length = CallRecord::LengthFor(size_);
  uint64_t longest = 0;
  for (int32_t from = 0; from < size_; ++from) {
    const auto record =
        std::span(records).subspan(static_cast<size_t>(from) * length, length);
    for (int32_t to = 0; to < size_; ++to) {
      longest =
          std::max(longest, from == to ? 0 : CallRecord::SentBytes(record, to));
    }
  }
  return (longest + PairBytes() - 1) / PairBytes();
}

void CollectiveEngine::Move(const ExchangePlan& plan, uint64_t num_rounds) {
  auto sends = SendsByPeer(plan, size_);
  auto receives = ReceivesByPeer(plan, size_);
  const auto self = static_cast<size_t>(rank_);
  CopyPieces(sends[self], receives[self]);
  for (uint64_t round = 0; round < num_rounds; ++round) {
    MoveRound(sends, receives);
  }
}

void CollectiveEngine::MoveRound(std::vector<SendQueue>& sends,
                                 std::vector<ReceiveQueue>& receives) {
  const std::vector<int64_t> sent = SplitTurn(sends, PairBytes());
  const std::vector<int64_t> received = SplitTurn(receives, PairBytes());
  const AllToAllBytes bytes{.out = SharedBytes(Sum(sent)),
                            .sent = sent,
                            .in = SharedBytes(Sum(received)),
                            .received = received};
  std::span<std::byte> out = bytes.out.span();
  for (size_t peer = 0; peer < sends.size(); ++peer) {
    const auto size = static_cast<size_t>(sent[peer]);
    TakeBytes(sends[peer], out.first(size));
    out = out.subspan(size);
  }
  AllToAll(bytes);
  std::span<const std::byte> in = bytes.in.span();
  for (size_t peer = 0; peer < receives.size(); ++peer) {
    const auto size = static_cast<size_t>(received[peer]);
    CopyPieces(in.first(size), receives[peer]);
    in = in.subspan(size);
  }
}

}  // namespace muonstore::comm
