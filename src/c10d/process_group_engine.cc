#include <exception>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "muonstore/c10d.h"
#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/c10d/abort_flag.h"
#include "src/comm/collective_engine.h"

namespace muonstore {
namespace {

using comm::Engine;
using comm::SharedBytes;

// How long to wait before a look at whether somebody aborted.
constexpr std::chrono::milliseconds kLook{50};

class ProcessGroupEngine : public comm::CollectiveEngine {
 public:
  ProcessGroupEngine(c10::intrusive_ptr<c10d::ProcessGroup> group,
                     const C10dOptions& options)
      : CollectiveEngine(group->getRank(), group->getSize()),
        group_(std::move(group)),
        options_(options),
        device_(group_->hasBackendForDeviceType(c10::kCPU) ? c10::kCPU
                                                           : c10::kCUDA),
        backend_(group_->getBackend(device_)),
        aborted_(group_->getStore(),
                 StrCat("muonstore-abort/", group_->getGroupName())) {}

  std::string_view name() const override { return "c10d"; }

  void Abort(std::string_view reason) override {
    aborted_.Raise(comm::AbortText(rank(), reason));
  }

 private:
  void AllGather(const SharedBytes& own, const SharedBytes& all) override {
    at::Tensor input = TensorOf(own).to(device_);
    at::Tensor output = TensorOf(all).to(device_);
    c10d::AllgatherOptions options;
    options.timeout = options_.timeout;
    Await(*backend_->_allgather_base(output, input, options));
    TakeBack(output, all);
  }

  void AllToAll(const AllToAllBytes& bytes) override {
    at::Tensor input = TensorOf(bytes.out).to(device_);
    at::Tensor output = TensorOf(bytes.in).to(device_);
    c10d::AllToAllOptions options;
    options.timeout = options_.timeout;
    // Gloo takes these with it.
    std::vector<int64_t> in_split = bytes.received;
    std::vector<int64_t> out_split = bytes.sent;
    Await(
        *backend_->alltoall_base(output, input, in_split, out_split, options));
    TakeBack(output, bytes.in);
  }

  void BroadcastFrom(int32_t root, const SharedBytes& data) override {
    std::vector<at::Tensor> tensors = {TensorOf(data).to(device_)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    options.timeout = options_.timeout;
    Await(*backend_->broadcast(tensors, options));
    TakeBack(tensors[0], data);
  }

  std::unique_ptr<Engine> Split(int number) override {
    std::vector<int> ranks(static_cast<size_t>(size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    // Keys of the group's store are made from the name.
    const std::string split_name =
        StrCat(group_->getGroupName(), "/muonstore-", number);
    return std::make_unique<ProcessGroupEngine>(
        group_->splitGroup(ranks, options_.timeout, std::nullopt, split_name,
                           std::nullopt),
        options_);
  }

  std::optional<std::string> KnownAbort() const override {
    return aborted_.Known();
  }
  std::optional<std::string> LookForAbort() override { return aborted_.Look(); }
  std::string backend_name() const override {
    return backend_->getBackendName();
  }

  // What gloo throws is no c10::Error.
  std::string TextOf(const std::exception& error) const override {
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    return torch_error != nullptr ? torch_error->what_without_backtrace()
                                  : error.what();
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
      if (const auto abort = aborted_.Look()) {
        throw Error(ErrorCode::kUnavailable, *abort);
      }
    }
  }

  // The same memory, which lives as long as the backend has the tensor.
  static at::Tensor TensorOf(const SharedBytes& bytes) {
    return at::from_blob(
        bytes.data.get(), {static_cast<int64_t>(bytes.size)},
        [keep = bytes.data](void* /*data*/) {}, at::kByte);
  }

  void TakeBack(const at::Tensor& output, const SharedBytes& bytes) const {
    if (device_ != c10::kCPU) TensorOf(bytes).copy_(output);
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  C10dOptions options_;
  c10::DeviceType device_;
  c10::intrusive_ptr<c10d::Backend> backend_;
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
