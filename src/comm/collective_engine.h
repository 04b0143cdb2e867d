// An engine over the collectives of somebody else's group of ranks.
//
// What: does every call of a communicator by all-gathers and all-to-alls. One
//   call, in order:
//   1. An all-gather of the call records: from here on everybody agrees.
//   2. An exchange is all-to-alls of bounded size, as many as the longest
//   stream between two ranks needs: all ranks work out the same number.
// Ownership: a backend may go on with memory after it has thrown, so that what
//   it gets is shared with it.
// Threads, failures: as Engine.
#ifndef MUONSTORE_SRC_COMM_COLLECTIVE_ENGINE_H_
#define MUONSTORE_SRC_COMM_COLLECTIVE_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/comm/call_record.h"
#include "src/comm/engine.h"
#include "src/comm/plan.h"

namespace muonstore::comm {

// Memory that lives as long as anybody uses it.
struct SharedBytes {
  explicit SharedBytes(size_t size_bytes)
      : data(std::make_shared_for_overwrite<std::byte[]>(size_bytes)),
        size(size_bytes) {}

  std::span<std::byte> span() const { return {data.get(), size}; }

  std::shared_ptr<std::byte[]> data;
  size_t size = 0;
};

class CollectiveEngine : public Engine {
 public:
  CollectiveEngine(int32_t rank, int32_t size) : rank_(rank), size_(size) {}

  int32_t rank() const final { return rank_; }
  int32_t size() const final { return size_; }

  void Exchange(const ExchangePlan& plan) final;
  void AllReduce(std::span<int64_t> values, ReduceOp op) final;
  void Broadcast(std::span<std::byte> data, int32_t root) final;
  void Barrier() final;
  // Nobody's memory is read in place.
  void Publish(Arena& arena) final;
  void Withdraw(Arena& arena) final;
  std::unique_ptr<Engine> Duplicate() final;

 protected:
  // `all` takes what each rank has, by rank; neither is empty.
  virtual void AllGather(const SharedBytes& own, const SharedBytes& all) = 0;
  // By rank: `sent` bytes of `out` and `received` bytes of `in`.
  struct AllToAllBytes {
    SharedBytes out;
    std::vector<int64_t> sent;
    SharedBytes in;
    std::vector<int64_t> received;
  };
  virtual void AllToAll(const AllToAllBytes& bytes) = 0;
  virtual void BroadcastFrom(int32_t root, const SharedBytes& data) = 0;
  // Over the same ranks; `number` is another one each time.
  virtual std::unique_ptr<Engine> Split(int number) = 0;
  // What a rank that aborted said: as far as is known here; asking others.
  virtual std::optional<std::string> KnownAbort() const = 0;
  virtual std::optional<std::string> LookForAbort() = 0;
  // "gloo".
  virtual std::string backend_name() const = 0;
  virtual std::string TextOf(const std::exception& error) const = 0;

 private:
  CallRecord Record(CallKind kind, uint64_t detail, uint64_t size_bytes) const {
    return {kind, detail, size_bytes, size_};
  }
  void Call(const CallRecord& record,
            const std::function<void(const std::vector<uint64_t>&)>& function);
  // What all ranks have, by rank.
  template <typename Number>
  std::vector<Number> Gather(std::span<const Number> own);
  uint64_t PairBytes() const;
  uint64_t NumRounds(const std::vector<uint64_t>& records) const;
  void Move(const ExchangePlan& plan, uint64_t num_rounds);
  void MoveRound(std::vector<SendQueue>& sends,
                 std::vector<ReceiveQueue>& receives);

  int32_t rank_;
  int32_t size_;
  uint64_t call_number_ = 0;
  int num_duplicates_ = 0;
};

}  // namespace muonstore::comm

#endif  // MUONSTORE_SRC_COMM_COLLECTIVE_ENGINE_H_
