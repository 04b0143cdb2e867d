#include <atomic>
#include <exception>
#include <optional>
#include <set>
#include <utility>

#include "muonstore/error.h"
#include "muonstore/tier.h"
#include "src/base/str.h"
#include "src/comm/engine.h"
#include "src/comm/plan.h"
#include "src/comm/worker.h"

namespace muonstore::comm {
namespace {

uint64_t BytesFromOthers(const ExchangePlan& plan, int32_t rank) {
  uint64_t bytes = 0;
  for (const ReceivePiece& piece : plan.receives) {
    bytes += piece.peer == rank ? 0 : piece.data.size();
  }
  return bytes;
}

class OrderedCommunicator : public Communicator {
 public:
  explicit OrderedCommunicator(std::unique_ptr<Engine> engine)
      : engine_(std::move(engine)) {}

  std::string_view name() const override { return engine_->name(); }
  int32_t rank() const override { return engine_->rank(); }
  int32_t size() const override { return engine_->size(); }

  PendingPtr Exchange(const ExchangePlan& plan) override {
    RequirePlan(plan, rank(), size());
    return worker_.Post([this, plan] {
      Guarded([&] { engine_->Exchange(plan); });
      received_bytes_ += BytesFromOthers(plan, rank());
    });
  }

  void AllReduce(std::span<int64_t> values, ReduceOp op) override {
    Run([&] { engine_->AllReduce(values, op); });
  }

  void Broadcast(std::span<std::byte> data, int32_t root) override {
    if (root < 0 || root >= size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("a broadcast from rank ", root, ", but there are ",
                         size(), " ranks"));
    }
    Run([&] { engine_->Broadcast(data, root); });
  }

  void Barrier() override {
    Run([&] { engine_->Barrier(); });
  }

  void Publish(Arena& arena) override {
    if (published_.contains(&arena)) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("arena ", arena.name(), " is published already"));
    }
    Run([&] { engine_->Publish(arena); });
    published_.insert(&arena);
  }

  void Withdraw(Arena& arena) override {
    if (!published_.contains(&arena)) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("arena ", arena.name(), " is not published"));
    }
    Run([&] { engine_->Withdraw(arena); });
    published_.erase(&arena);
  }

  void Abort(std::string_view reason) noexcept override {
    // The other half of a fork goes on.
    if (worker_.forked()) {
      return;
    }
    try {
      engine_->Abort(reason);
    } catch (const std::exception&) {
      // Then the peers hear of it by their timeout.
    }
  }

  std::unique_ptr<Communicator> Duplicate() override {
    std::unique_ptr<Engine> duplicate;
    Run([&] { duplicate = engine_->Duplicate(); });
    return MakeOrderedCommunicator(std::move(duplicate));
  }

  uint64_t received_bytes() const override { return received_bytes_; }

 private:
  template <typename Function>
  void Run(const Function& function) {
    worker_.Post([this, &function] { Guarded(function); })->Wait();
  }

  // On the worker: after a failure every call says the same.
  template <typename Function>
  void Guarded(const Function& function) {
    if (broken_) {
      throw Error(*broken_);
    }
    try {
      function();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalidArgument) {
        Break(error.what());
      }
      throw;
    } catch (const std::exception& error) {
      Break(error.what());
    }
  }

  [[noreturn]] void Break(const std::string& reason) {
    broken_.emplace(ErrorCode::kUnavailable, reason);
    throw Error(*broken_);
  }

  std::unique_ptr<Engine> engine_;
  // Of the calling thread.
  std::set<const Arena*> published_;
  // Of the worker.
  std::optional<Error> broken_;
  std::atomic<uint64_t> received_bytes_ = 0;
  // Last: it ends first.
  Worker worker_;
};

}  // namespace

std::string AbortText(int32_t rank, std::string_view reason) {
  return StrCat("rank ", rank, " aborted: ", reason);
}

void RequireTimeout(std::chrono::milliseconds timeout) {
  if (timeout.count() <= 0 || timeout > kMaxCommunicatorTimeout) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "the timeout of a communicator must be positive and at most a "
        "year",
        {.expected = StrCat("1 to ", kMaxCommunicatorTimeout.count(), " ms"),
         .found = StrCat(timeout.count(), " ms")});
  }
}

std::unique_ptr<Communicator> MakeOrderedCommunicator(
    std::unique_ptr<Engine> engine) {
  return std::make_unique<OrderedCommunicator>(std::move(engine));
}

}  // namespace muonstore::comm
