// One call, in order:
//   1. An all-gather of the call records: from here on everybody agrees.
//   2. An exchange is all-to-alls of bounded size, as many as the longest
//   stream
//      between two ranks needs: all ranks work out the same number.
#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "muonstore/c10d.h"
#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/c10d/abort_flag.h"
#include "src/comm/call_record.h"
#include "src/comm/engine.h"
#include "src/comm/plan.h"
#include "src/comm/reduce.h"

namespace muonstore {
namespace {

using comm::CallKind;
using comm::CallRecord;

// What a rank sends in one all-to-all. Equal on all ranks.
constexpr uint64_t kRoundBytes = uint64_t{16} << 20;
// How long to wait before a look at whether somebody aborted.
constexpr std::chrono::milliseconds kLook{50};

// What gloo throws is no c10::Error.
std::string_view TextOf(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace()
                                : error.what();
}

class ProcessGroupEngine : public comm::Engine {
 public:
  ProcessGroupEngine(c10::intrusive_ptr<c10d::ProcessGroup> group,
                     const C10dOptions& options)
      : group_(std::move(group)),
        options_(options),
        device_(group_->hasBackendForDeviceType(c10::kCPU) ? c10::kCPU
                                                           : c10::kCUDA),
        backend_(group_->getBackend(device_)),
        rank_(group_->getRank()),
        size_(group_->getSize()),
        aborted_(group_->getStore(),
                 StrCat("muonstore-abort/", group_->getGroupName())) {}

  std::string_view name() const override { return "c10d"; }
  int32_t rank() const override { return rank_; }
  int32_t size() const override { return size_; }

  void Exchange(const ExchangePlan& plan) override {
    const CallRecord record = CallRecord::ForExchange(plan, size_);
    Call(record, [&](const std::vector<uint64_t>& records) {
      Move(plan, NumRounds(records));
    });
  }

  void AllReduce(std::span<int64_t> values, ReduceOp op) override {
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
               comm::Reduce(op, theirs, values);
             }
           }
         });
  }

  void Broadcast(std::span<std::byte> data, int32_t root) override {
    Call(Record(CallKind::kBroadcast, static_cast<uint64_t>(root), data.size()),
         [&](const auto& /*records*/) {
           if (data.empty()) {
             return;
           }
           at::Tensor host = HostBytes(data.size());
           std::memcpy(host.data_ptr(), data.data(), data.size());
           std::vector<at::Tensor> tensors = {host.to(device_)};
           c10d::BroadcastOptions options;
           options.rootRank = root;
           options.timeout = options_.timeout;
           Await(*backend_->broadcast(tensors, options));
           host = tensors[0].cpu();
           std::memcpy(data.data(), host.data_ptr(), data.size());
         });
  }

  void Barrier() override {
    Call(Record(CallKind::kBarrier, 0, 0), [](const auto& /*records*/) {});
  }

  // A network reads nobody's memory in place.
  void Publish(Arena& /*arena*/) override {
    Call(Record(CallKind::kPublish, 0, 0), [](const auto& /*records*/) {});
  }
  void Withdraw(Arena& /*arena*/) override {
    Call(Record(CallKind::kWithdraw, 0, 0), [](const auto& /*records*/) {});
  }

  std::unique_ptr<Engine> Duplicate() override {
    std::unique_ptr<Engine> duplicate;
    Call(Record(CallKind::kDuplicate, 0, 0), [&](const auto& /*records*/) {
      std::vector<int> ranks(static_cast<size_t>(size_));
      std::iota(ranks.begin(), ranks.end(), 0);
      // Keys of the group's store are made from the name.
      const std::string split_name =
          StrCat(group_->getGroupName(), "/muonstore-", num_duplicates_++);
      duplicate = std::make_unique<ProcessGroupEngine>(
          group_->splitGroup(ranks, options_.timeout, std::nullopt, split_name,
                             std::nullopt),
          options_);
    });
    return duplicate;
  }

  void Abort(std::string_view reason) override {
    aborted_.Raise(comm::AbortText(rank_, reason));
  }

 private:
  CallRecord Record(CallKind kind, uint64_t detail, uint64_t size_bytes) const {
    return {kind, detail, size_bytes, size_};
  }

  template <typename Function>
  void Call(const CallRecord& record, const Function& function) {
    ++call_number_;
    ThrowIf(aborted_.Known());
    try {
      const std::vector<uint64_t> records = Gather(record.numbers());
      const size_t length = record.numbers().size();
      const auto disagreement =
          comm::FindDisagreement(call_number_, size_, [&](int32_t peer) {
            return std::span(records).subspan(
                static_cast<size_t>(peer) * length, length);
          });
      if (disagreement) {
        throw Error(ErrorCode::kUnavailable, *disagreement);
      }
      function(records);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      // A rank that aborted may be gone by now.
      ThrowIf(aborted_.Look());
      throw Error(
          ErrorCode::kUnavailable,
          StrCat("rank ", rank_, " failed in call ", call_number_, ", ",
                 comm::CallKindName(record.kind()), ", of its process group (",
                 backend_->getBackendName(), "): ", TextOf(error)));
    }
  }

  static void ThrowIf(const std::optional<std::string>& abort) {
    if (abort) {
      throw Error(ErrorCode::kUnavailable, *abort);
    }
  }

  // Until it is done or some rank aborts. Work of a device has no wait that
  // ends early.
  void Await(c10d::Work& work) {
    if (device_ != c10::kCPU) {
      work.wait();
      return;
    }
    while (true) {
      try {
        work.wait(kLook);
        return;
      } catch (const std::exception&) {
        if (work.isCompleted()) {
          work.wait();
          return;
        }
      }
      ThrowIf(aborted_.Look());
    }
  }

  static at::Tensor HostBytes(uint64_t size_bytes) {
    return at::empty({static_cast<int64_t>(size_bytes)}, at::kByte);
  }

  // What all ranks have, by rank.
  template <typename Number>
  std::vector<Number> Gather(std::span<const Number> own) {
    std::vector<Number> all(own.size() * static_cast<size_t>(size_));
    if (own.empty()) {
      return all;
    }
    at::Tensor host = HostBytes(own.size_bytes());
    std::memcpy(host.data_ptr(), own.data(), own.size_bytes());
    at::Tensor input = host.to(device_);
    at::Tensor output = HostBytes(all.size() * sizeof(Number)).to(device_);
    c10d::AllgatherOptions options;
    options.timeout = options_.timeout;
    Await(*backend_->_allgather_base(output, input, options));
    host = output.cpu();
    std::memcpy(all.data(), host.data_ptr(), all.size() * sizeof(Number));
    return all;
  }

  uint64_t PairBytes() const {
    return std::max<uint64_t>(1, kRoundBytes / static_cast<uint64_t>(size_));
  }

  uint64_t NumRounds(const std::vector<uint64_t>& records) const {
    const size_t length = CallRecord::LengthFor(size_);
    uint64_t longest = 0;
    for (int32_t from = 0; from < size_; ++from) {
      const auto record = std::span(records).subspan(
          static_cast<size_t>(from) * length, length);
      for (int32_t to = 0; to < size_; ++to) {
        longest = std::max(longest,
                           from == to ? 0 : CallRecord::SentBytes(record, to));
      }
    }
    return (longest + PairBytes() - 1) / PairBytes();
  }

  void Move(const ExchangePlan& plan, uint64_t num_rounds) {
    auto sends = comm::SendsByPeer(plan, size_);
    auto receives = comm::ReceivesByPeer(plan, size_);
    const auto self = static_cast<size_t>(rank_);
    comm::CopyPieces(sends[self], receives[self]);
    for (uint64_t round = 0; round < num_rounds; ++round) {
      MoveRound(sends, receives);
    }
  }

  // The bytes of each peer's turn.
  template <typename Queue>
  std::vector<int64_t> Split(const std::vector<Queue>& queues) const {
    std::vector<int64_t> split;
    split.reserve(queues.size());
    for (const Queue& queue : queues) {
      split.push_back(
          static_cast<int64_t>(std::min(queue.left_bytes(), PairBytes())));
    }
    return split;
  }

  void MoveRound(std::vector<comm::SendQueue>& sends,
                 std::vector<comm::ReceiveQueue>& receives) {
    const std::vector<int64_t> sent = Split(sends);
    const std::vector<int64_t> received = Split(receives);
    at::Tensor host_out = HostBytes(Sum(sent));
    auto* out = static_cast<std::byte*>(host_out.data_ptr());
    for (size_t peer = 0; peer < sends.size(); ++peer) {
      const auto bytes = static_cast<size_t>(sent[peer]);
      comm::TakeBytes(sends[peer], {out, bytes});
      out += bytes;
    }
    at::Tensor input = host_out.to(device_);
    at::Tensor output = HostBytes(Sum(received)).to(device_);
    c10d::AllToAllOptions options;
    options.timeout = options_.timeout;
    // Gloo takes these with it.
    std::vector<int64_t> in_split = received;
    std::vector<int64_t> out_split = sent;
    Await(
        *backend_->alltoall_base(output, input, in_split, out_split, options));
    const at::Tensor host_in = output.cpu();
    const auto* in = static_cast<const std::byte*>(host_in.data_ptr());
    for (size_t peer = 0; peer < receives.size(); ++peer) {
      const auto bytes = static_cast<size_t>(received[peer]);
      comm::CopyPieces({in, bytes}, receives[peer]);
      in += bytes;
    }
  }

  static uint64_t Sum(const std::vector<int64_t>& split) {
    return static_cast<uint64_t>(
        std::accumulate(split.begin(), split.end(), int64_t{0}));
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  C10dOptions options_;
  c10::DeviceType device_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  int32_t rank_;
  int32_t size_;
  uint64_t call_number_ = 0;
  int num_duplicates_ = 0;
  AbortFlag aborted_;
};

}  // namespace

std::unique_ptr<Communicator> MakeC10dCommunicator(
    c10::intrusive_ptr<c10d::ProcessGroup> group, const C10dOptions& options) {
  comm::RequireTimeout(options.timeout);
  return comm::MakeOrderedCommunicator(
      std::make_unique<ProcessGroupEngine>(std::move(group), options));
}

}  // namespace muonstore
