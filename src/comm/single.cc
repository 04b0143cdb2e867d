#include <cstring>

#include "src/comm/engine.h"
#include "src/comm/plan.h"

namespace muonstore {
namespace {

class SingleEngine : public comm::Engine {
 public:
  std::string_view name() const override { return "single"; }
  int32_t rank() const override { return 0; }
  int32_t size() const override { return 1; }

  void Exchange(const ExchangePlan& plan) override {
    auto sends = comm::SendsByPeer(plan, 1);
    auto receives = comm::ReceivesByPeer(plan, 1);
    comm::CopyPieces(sends[0], receives[0]);
  }

  // One rank has what all ranks have.
  void AllReduce(std::span<int64_t> /*values*/, ReduceOp /*op*/) override {}
  void Broadcast(std::span<std::byte> /*data*/, int32_t /*root*/) override {}
  void Barrier() override {}
  void Publish(Arena& /*arena*/) override {}
  void Withdraw(Arena& /*arena*/) override {}

  std::unique_ptr<Engine> Duplicate() override {
    return std::make_unique<SingleEngine>();
  }
};

}  // namespace

std::unique_ptr<Communicator> MakeSingleCommunicator() {
  return comm::MakeOrderedCommunicator(std::make_unique<SingleEngine>());
}

}  // namespace muonstore
