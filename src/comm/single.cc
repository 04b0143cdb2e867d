#include <cstring>
#include <mutex>
#include <optional>

#include "muonstore/error.h"
#include "src/comm/engine.h"
#include "src/comm/plan.h"

namespace muonstore {
namespace {

// One rank has what all ranks have.
class SingleEngine : public comm::Engine {
 public:
  std::string_view name() const override { return "single"; }
  int32_t rank() const override { return 0; }
  int32_t size() const override { return 1; }

  void Exchange(const ExchangePlan& plan) override {
    RequireWhole();
    auto sends = comm::SendsByPeer(plan, 1);
    auto receives = comm::ReceivesByPeer(plan, 1);
    comm::CopyPieces(sends[0], receives[0]);
  }

  void AllReduce(std::span<int64_t> /*values*/, ReduceOp /*op*/) override {
    RequireWhole();
  }
  void Broadcast(std::span<std::byte> /*data*/, int32_t /*root*/) override {
    RequireWhole();
  }
  void Barrier() override { RequireWhole(); }
  void Publish(Arena& /*arena*/) override { RequireWhole(); }
  void Withdraw(Arena& /*arena*/) override { RequireWhole(); }

  std::unique_ptr<Engine> Duplicate() override {
    RequireWhole();
    return std::make_unique<SingleEngine>();
  }

  void Abort(std::string_view reason) override {
    const std::lock_guard lock(mutex_);
    if (!aborted_) {
      aborted_.emplace(ErrorCode::kUnavailable,
                       comm::AbortText(rank(), reason));
    }
  }

 private:
  void RequireWhole() {
    const std::lock_guard lock(mutex_);
    if (aborted_) {
      throw Error(*aborted_);
    }
  }

  std::mutex mutex_;
  std::optional<Error> aborted_;
};

}  // namespace

std::unique_ptr<Communicator> MakeSingleCommunicator() {
  return comm::MakeOrderedCommunicator(std::make_unique<SingleEngine>());
}

}  // namespace muonstore
