// One call, in order:
//   1. Each rank writes the record of its call and announces it; when all have,
//      all compare all records. From here on everybody agrees.
//   2. Bytes move through channels (transfer.h), or descriptors through sockets
//      (descriptor_relay.h).
//   3. A rank is done when its receives are filled and its sends are copied; it
//      does not wait for the others' exchanges.
// Every wait looks at the peers: one that died, left or hangs ends the call on
// all ranks. What this does not promise: that all ranks see the same call fail
// when a rank dies, as some may have finished theirs.
#include "src/comm/shared/shared_memory_engine.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/comm/plan.h"
#include "src/comm/reduce.h"
#include "src/comm/shared/descriptor_relay.h"
#include "src/comm/shared/node.h"
#include "src/comm/shared/published_arenas.h"
#include "src/comm/shared/transfer.h"

namespace muonstore {
namespace comm {
namespace {

class SharedMemoryEngine : public Engine {
 public:
  explicit SharedMemoryEngine(Membership membership)
      : node_(std::move(membership)) {}

  std::string_view name() const override { return "shared memory"; }
  int32_t rank() const override { return node_.rank(); }
  int32_t size() const override { return node_.size(); }

  void Exchange(const ExchangePlan& plan) override {
    Call(CallRecord::ForExchange(plan, size()), [&] { Move(plan); });
  }

  // Everybody gets everything: these are short.
  void AllReduce(std::span<int64_t> values, ReduceOp op) override {
    Call(Record(CallKind::kAllReduce, static_cast<uint64_t>(op), values.size()),
         [&] {
           const auto ranks = static_cast<size_t>(size());
           std::vector<int64_t> all(ranks * values.size());
           const auto of = [&](int32_t rank) {
             return std::span(all).subspan(
                 static_cast<size_t>(rank) * values.size(), values.size());
           };
           ExchangePlan plan;
           for (int32_t peer = 0; peer < size(); ++peer) {
             plan.sends.push_back({peer, std::as_bytes(values)});
             plan.receives.push_back({peer, std::as_writable_bytes(of(peer))});
           }
           Move(plan);
           std::ranges::copy(of(0), values.begin());
           for (int32_t peer = 1; peer < size(); ++peer) {
             Reduce(op, of(peer), values);
           }
         });
  }

  void Broadcast(std::span<std::byte> data, int32_t root) override {
    Call(Record(CallKind::kBroadcast, static_cast<uint64_t>(root), data.size()),
         [&] {
           ExchangePlan plan;
           if (rank() != root) {
             plan.receives.push_back({root, data});
           }
           for (int32_t peer = 0; rank() == root && peer < size(); ++peer) {
             if (peer != root) {
               plan.sends.push_back({peer, data});
             }
           }
           Move(plan);
         });
  }

  void Barrier() override {
    Call(Record(CallKind::kBarrier, 0, 0), [] {});
  }

  void Publish(Arena& arena) override {
    Call(Record(CallKind::kPublish, 0, 0),
         [&] { arenas_.Add(arena, GatherArenas(node_, arena)); });
  }

  void Withdraw(Arena& arena) override {
    const int32_t number = arenas_.NumberOf(arena);
    Call(Record(CallKind::kWithdraw, static_cast<uint64_t>(number), 0),
         [&] { arenas_.Remove(number); });
  }

  std::unique_ptr<Engine> Duplicate() override {
    std::unique_ptr<Engine> duplicate;
    Call(Record(CallKind::kDuplicate, 0, 0), [&] {
      duplicate =
          std::make_unique<SharedMemoryEngine>(DuplicateMembership(node_));
    });
    return duplicate;
  }

  void Abort(std::string_view reason) override {
    node_.Break(AbortText(rank(), reason));
  }

 private:
  CallRecord Record(CallKind kind, uint64_t detail, uint64_t size_bytes) const {
    return {kind, detail, size_bytes, size()};
  }

  // What fails on this rank alone breaks the call for all.
  template <typename Function>
  void Call(const CallRecord& record, const Function& function) {
    try {
      node_.BeginCall(record);
      function();
    } catch (const std::exception& error) {
      // Keeps the first reason, where there is one.
      node_.Fail(StrCat("rank ", rank(), " failed: ", error.what()));
    }
  }

  void Move(const ExchangePlan& plan) {
    Transfer transfer(node_, arenas_, plan);
    node_.Run(transfer);
  }

  PublishedArenas arenas_;
  Node node_;
};

}  // namespace

std::unique_ptr<Engine> MakeSharedMemoryEngine(Membership membership) {
  return std::make_unique<SharedMemoryEngine>(std::move(membership));
}

}  // namespace comm

std::unique_ptr<Communicator> ConnectSharedMemory(
    const SharedMemoryOptions& options) {
  return comm::MakeOrderedCommunicator(
      comm::MakeSharedMemoryEngine(comm::Meet(options)));
}

}  // namespace muonstore
