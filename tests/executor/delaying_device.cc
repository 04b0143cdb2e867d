#include "tests/executor/delaying_device.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "muonstore/error.h"

namespace muonstore::testutil {
namespace {

struct Work {
  std::function<void()> run;
  bool done = false;
  std::exception_ptr error;
};

// The work of one buffer, in the order in which it was started.
class Buffer : public DeviceBuffer {
 public:
  // Is in `all` while it lives.
  Buffer(uint64_t size_bytes, std::shared_ptr<std::vector<Buffer*>> all)
      : memory(size_bytes), all_(std::move(all)) {
    all_->push_back(this);
  }
  ~Buffer() override { std::erase(*all_, this); }
  uint64_t size_bytes() const override { return memory.size(); }

  std::vector<std::byte> memory;
  std::deque<std::shared_ptr<Work>> waiting;

 private:
  std::shared_ptr<std::vector<Buffer*>> all_;
};

class Delayed : public DelayingDevice {
 public:
  Delayed(const NewtonSchulzOptions& newton_schulz,
          const DelayingDeviceOptions& options)
      : pool_(1),
        orthogonalizer_(newton_schulz, pool_),
        options_(options),
        random_(options.seed) {}

  std::string_view name() const override { return "delaying"; }
  bool works_in_host_memory() const override { return false; }
  void OrthogonalizeInPlace(std::span<const OrthogonalizeJob>) override {
    throw Error(ErrorCode::kInternal, "this device has memory of its own");
  }

  std::unique_ptr<DeviceBuffer> Allocate(uint64_t size_bytes) override {
    return std::make_unique<Buffer>(size_bytes, buffers_);
  }

  PendingPtr CopyIn(DeviceBuffer& to,
                    std::span<const std::byte> from) override {
    auto& buffer = static_cast<Buffer&>(to);
    return Start(buffer, [this, &buffer, from] {
      std::copy(from.begin(), from.end(), buffer.memory.begin());
      ++counts_.copies_in;
    });
  }

  PendingPtr Orthogonalize(DeviceBuffer& of,
                           const DeviceMatrices& matrices) override {
    auto& buffer = static_cast<Buffer&>(of);
    return Start(buffer, [this, &buffer, matrices] {
      auto* data = reinterpret_cast<float*>(buffer.memory.data());
      const int64_t size = matrices.rows * matrices.cols;
      const OrthogonalizeJob job = {{data, matrices.batch, matrices.rows,
                                     matrices.cols, size, matrices.cols},
                                    {data, matrices.batch, matrices.rows,
                                     matrices.cols, size, matrices.cols}};
      orthogonalizer_.Run({&job, 1});
      counts_.orthogonalized += matrices.batch;
    });
  }

  PendingPtr CopyOut(std::span<std::byte> to,
                     const DeviceBuffer& from) override {
    // The device's own list of work is no part of what callers see as const.
    auto& buffer = const_cast<Buffer&>(static_cast<const Buffer&>(from));
    return Start(buffer, [this, &buffer, to] {
      std::copy_n(buffer.memory.begin(), to.size(), to.begin());
      ++counts_.copies_out;
    });
  }

  void Drain() override {
    while (num_waiting() > 0) RunOne();
  }

  const DelayingDeviceCounts& counts() const override { return counts_; }

  int64_t num_waiting() const override {
    int64_t waiting = 0;
    for (const Buffer* buffer : *buffers_) {
      waiting += static_cast<int64_t>(buffer->waiting.size());
    }
    return waiting;
  }

 private:
  class Handle : public Pending {
   public:
    Handle(Delayed& device, std::shared_ptr<Work> work)
        : device_(device), work_(std::move(work)) {}
    ~Handle() override {
      while (!work_->done) device_.RunOne();
    }
    void Wait() override {
      while (!work_->done) device_.RunOne();
      if (work_->error != nullptr) std::rethrow_exception(work_->error);
    }
    bool done() const override { return work_->done; }

   private:
    Delayed& device_;
    std::shared_ptr<Work> work_;
  };

  PendingPtr Start(Buffer& buffer, std::function<void()> run) {
    auto work = std::make_shared<Work>();
    work->run = std::move(run);
    buffer.waiting.push_back(work);
    counts_.peak_waiting = std::max(counts_.peak_waiting, num_waiting());
    return std::make_unique<Handle>(*this, std::move(work));
  }

  void RunOne() {
    std::vector<Buffer*> ready;
    for (Buffer* buffer : *buffers_) {
      if (!buffer->waiting.empty()) ready.push_back(buffer);
    }
    Buffer& buffer = *ready.at(random_() % ready.size());
    const std::shared_ptr<Work> work = buffer.waiting.front();
    buffer.waiting.pop_front();
    work->done = true;
    try {
      if (++num_run_ == options_.fail_at) {
        throw Error(ErrorCode::kUnavailable, "the test device failed");
      }
      work->run();
    } catch (...) {
      work->error = std::current_exception();
    }
  }

  ThreadPool pool_;
  Orthogonalizer orthogonalizer_;
  DelayingDeviceOptions options_;
  DelayingDeviceCounts counts_;
  std::mt19937_64 random_;
  int64_t num_run_ = 0;
  std::shared_ptr<std::vector<Buffer*>> buffers_ =
      std::make_shared<std::vector<Buffer*>>();
};

}  // namespace

std::shared_ptr<DelayingDevice> MakeDelayingDevice(
    const NewtonSchulzOptions& newton_schulz,
    const DelayingDeviceOptions& options) {
  return std::make_shared<Delayed>(newton_schulz, options);
}

}  // namespace muonstore::testutil
