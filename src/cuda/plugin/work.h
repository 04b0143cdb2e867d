// Handles on a GPU's work, and the buffers it is about.
//
// Ownership: an event is shared by the handle and the buffer whose last work it
//   ends. Sums of squares are written by the GPU until that event.
// Threads: the device's.
// Failures: Wait throws what the GPU reports, and Error(kInvalidArgument) for a
//   matrix that is not finite.

#ifndef MUONSTORE_SRC_CUDA_PLUGIN_WORK_H_
#define MUONSTORE_SRC_CUDA_PLUGIN_WORK_H_

#include <cstdint>
#include <exception>
#include <memory>

#include "muonstore/device.h"
#include "muonstore/pending.h"
#include "src/cuda/plugin/owners.h"

namespace muonstore::cuda {

// Sums of squares of a batch's matrices.
struct BatchSums {
  std::shared_ptr<PinnedMemory> memory;
  DeviceMatrices matrices;
};

class Work : public Pending {
 public:
  // `sums.memory` may be null: nothing to check.
  Work(const Api& api, std::shared_ptr<Event> event, BatchSums sums);
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work() override;
  void Wait() override;
  bool done() const override;

 private:
  void Finish();

  const Api& api_;
  std::shared_ptr<Event> event_;
  BatchSums sums_;
  bool finished_ = false;
  std::exception_ptr error_;
};

class GpuBuffer : public DeviceBuffer {
 public:
  GpuBuffer(const Api& api, MemoryBudget& budget, uint64_t size_bytes);
  GpuBuffer(const GpuBuffer&) = delete;
  GpuBuffer& operator=(const GpuBuffer&) = delete;
  ~GpuBuffer() override;
  uint64_t size_bytes() const override { return memory_.size_bytes(); }
  std::byte* data() const { return memory_.data(); }

  // The end of the last work that was started; null before the first.
  const std::shared_ptr<Event>& last() const { return last_; }
  void set_last(std::shared_ptr<Event> event) const {
    last_ = std::move(event);
  }
  // Room for `count` sums that nobody else looks at.
  std::shared_ptr<PinnedMemory> TakeSums(int64_t count);

 private:
  const Api& api_;
  DeviceMemory memory_;
  // A copy out of a buffer that callers see as const is work as well.
  mutable std::shared_ptr<Event> last_;
  std::shared_ptr<PinnedMemory> sums_;
};

}  // namespace muonstore::cuda

#endif  // MUONSTORE_SRC_CUDA_PLUGIN_WORK_H_
