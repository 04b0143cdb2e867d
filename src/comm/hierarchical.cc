// One exchange, in order:
//   1. Pieces for ranks of this node go through `inside`, all others through
//      `across`, at the same time.
//   2. All ranks vote through `across`: what went wrong inside one node is told
//      to all, in the words of the lowest rank that saw it.
// A failure of `across` needs no vote: it reaches all ranks by itself. Whatever
// fails, both communicators are closed, so that nobody waits for this rank.
#include <algorithm>
#include <array>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/comm/engine.h"

namespace muonstore {
namespace comm {
namespace {

// By rank: its rank inside this node, or kElsewhere.
constexpr int32_t kElsewhere = -1;
using NodeMap = std::vector<int32_t>;

// Collective: who is here?
NodeMap FindNeighbours(Communicator& inside, const Communicator& across) {
  const int64_t own = across.rank();
  std::vector<int64_t> ranks(static_cast<size_t>(inside.size()));
  ExchangePlan plan;
  for (int32_t peer = 0; peer < inside.size(); ++peer) {
    plan.sends.push_back({peer, std::as_bytes(std::span(&own, 1))});
    plan.receives.push_back(
        {peer, std::as_writable_bytes(
                   std::span(ranks).subspan(static_cast<size_t>(peer), 1))});
  }
  inside.Exchange(plan)->Wait();
  NodeMap map(static_cast<size_t>(across.size()), kElsewhere);
  for (size_t peer = 0; peer < ranks.size(); ++peer) {
    if (ranks[peer] < 0 || ranks[peer] >= across.size() ||
        map[static_cast<size_t>(ranks[peer])] != kElsewhere) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("rank ", peer, " of this node calls itself rank ",
                         ranks[peer], " of ", across.size(),
                         ": the two communicators do not fit together"));
    }
    map[static_cast<size_t>(ranks[peer])] = static_cast<int32_t>(peer);
  }
  return map;
}

class HierarchicalEngine : public Engine {
 public:
  HierarchicalEngine(std::unique_ptr<Communicator> inside,
                     std::unique_ptr<Communicator> across, NodeMap node)
      : inside_(std::move(inside)),
        across_(std::move(across)),
        node_(std::move(node)),
        rank_(across_->rank()),
        size_(across_->size()) {}

  std::string_view name() const override { return "hierarchical"; }
  int32_t rank() const override { return rank_; }
  int32_t size() const override { return size_; }

  void Exchange(const ExchangePlan& plan) override {
    ExchangePlan near;
    ExchangePlan far;
    Split(plan.sends, near.sends, far.sends);
    Split(plan.receives, near.receives, far.receives);
    Guarded([&] {
      const PendingPtr inside = inside_->Exchange(near);
      const PendingPtr across = across_->Exchange(far);
      const auto failure = FailureOf([&] { inside->Wait(); });
      across->Wait();
      Vote(failure);
    });
  }

  void AllReduce(std::span<int64_t> values, ReduceOp op) override {
    Guarded([&] { across_->AllReduce(values, op); });
  }
  void Broadcast(std::span<std::byte> data, int32_t root) override {
    Guarded([&] { across_->Broadcast(data, root); });
  }
  void Barrier() override {
    Guarded([&] { across_->Barrier(); });
  }

  void Publish(Arena& arena) override {
    Guarded([&] { Vote(FailureOf([&] { inside_->Publish(arena); })); });
  }
  void Withdraw(Arena& arena) override {
    Guarded([&] { Vote(FailureOf([&] { inside_->Withdraw(arena); })); });
  }

  std::unique_ptr<Engine> Duplicate() override {
    std::unique_ptr<Communicator> inside;
    std::unique_ptr<Communicator> across;
    Guarded([&] {
      Vote(FailureOf([&] { inside = inside_->Duplicate(); }));
      across = across_->Duplicate();
    });
    return std::make_unique<HierarchicalEngine>(std::move(inside),
                                                std::move(across), node_);
  }

  // `across` first: where `inside` has failed, its words, which count the ranks
  // of one node, are not the ones that are told.
  void Abort(std::string_view reason) override {
    const std::lock_guard lock(closing_);
    if (across_ != nullptr) {
      across_->Abort(reason);
      inside_->Abort(reason);
    }
  }

 private:
  // Long enough for a reason, of a size that all ranks know.
  using Reason = std::array<std::byte, 512>;

  template <typename Piece>
  void Split(const std::vector<Piece>& all, std::vector<Piece>& near,
             std::vector<Piece>& far) const {
    for (const Piece& piece : all) {
      const int32_t neighbour = node_[static_cast<size_t>(piece.peer)];
      if (neighbour == kElsewhere) {
        far.push_back(piece);
      } else {
        near.push_back({neighbour, piece.data});
      }
    }
  }

  static std::optional<std::string> FailureOf(
      const std::function<void()>& call) {
    try {
      call();
      return std::nullopt;
    } catch (const Error& error) {
      return error.what();
    }
  }

  // Collective. Throws on all ranks where one has a failure.
  void Vote(const std::optional<std::string>& failure) {
    std::array<int64_t, 1> speaker = {failure ? rank_ : size_};
    across_->AllReduce(speaker, ReduceOp::kMin);
    if (speaker[0] == size_) {
      return;
    }
    Reason reason{};
    if (failure && speaker[0] == rank_) {
      const auto text = std::as_bytes(std::span(*failure));
      std::ranges::copy(text.first(std::min(text.size(), reason.size() - 1)),
                        reason.begin());
    }
    across_->Broadcast(reason, static_cast<int32_t>(speaker[0]));
    throw Error(
        ErrorCode::kUnavailable,
        StrCat("on the node of rank ", speaker[0], ": ",
               std::string_view(reinterpret_cast<const char*>(reason.data()))));
  }

  template <typename Function>
  void Guarded(const Function& function) {
    try {
      function();
    } catch (...) {
      Close();
      throw;
    }
  }

  // An abort that comes from another thread finds both, or none.
  void Close() {
    std::unique_ptr<Communicator> inside;
    std::unique_ptr<Communicator> across;
    const std::lock_guard lock(closing_);
    inside = std::move(inside_);
    across = std::move(across_);
  }

  std::mutex closing_;
  std::unique_ptr<Communicator> inside_;
  std::unique_ptr<Communicator> across_;
  NodeMap node_;
  int32_t rank_;
  int32_t size_;
};

}  // namespace
}  // namespace comm

std::unique_ptr<Communicator> MakeHierarchicalCommunicator(
    std::unique_ptr<Communicator> inside,
    std::unique_ptr<Communicator> across) {
  comm::NodeMap node = comm::FindNeighbours(*inside, *across);
  return comm::MakeOrderedCommunicator(
      std::make_unique<comm::HierarchicalEngine>(
          std::move(inside), std::move(across), std::move(node)));
}

}  // namespace muonstore
