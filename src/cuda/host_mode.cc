#include "src/cuda/host_mode.h"

#include <utility>

#include "muonstore/thread_pool.h"

namespace muonstore::cuda {
namespace {

class HostModeDevice : public CudaDevice {
 public:
  HostModeDevice(std::unique_ptr<CudaDevice> gpu, const CudaOptions& options)
      : gpu_(std::move(gpu)),
        threads_(options.num_threads),
        host_(MakeHostDevice(options.newton_schulz, threads_)) {}

  // Of the kind of any other device that works in host memory: same bits.
  std::string_view name() const override { return host_->name(); }
  CudaMode mode() const override { return CudaMode::kHost; }
  bool works_in_host_memory() const override { return true; }
  void OrthogonalizeInPlace(std::span<const OrthogonalizeJob> jobs) override {
    host_->OrthogonalizeInPlace(jobs);
  }
  DeviceUsage usage() const override { return gpu_->usage(); }
  std::unique_ptr<IoMemory> RegisterMemory(
      std::span<std::byte> memory) override {
    return gpu_->RegisterMemory(memory);
  }

  std::unique_ptr<DeviceBuffer> Allocate(uint64_t size_bytes) override {
    return host_->Allocate(size_bytes);
  }
  PendingPtr CopyIn(DeviceBuffer& to,
                    std::span<const std::byte> from) override {
    return host_->CopyIn(to, from);
  }
  PendingPtr Orthogonalize(DeviceBuffer& buffer,
                           const DeviceMatrices& matrices) override {
    return host_->Orthogonalize(buffer, matrices);
  }
  PendingPtr CopyOut(std::span<std::byte> to,
                     const DeviceBuffer& from) override {
    return host_->CopyOut(to, from);
  }

  PendingPtr Download(std::span<std::byte> to, const void* from,
                      void* stream) override {
    return gpu_->Download(to, from, stream);
  }
  PendingPtr Upload(void* to, std::span<const std::byte> from,
                    void* stream) override {
    return gpu_->Upload(to, from, stream);
  }
  void Drain() override { gpu_->Drain(); }

 private:
  std::unique_ptr<CudaDevice> gpu_;
  ThreadPool threads_;
  std::unique_ptr<Device> host_;
};

}  // namespace

std::unique_ptr<CudaDevice> MakeHostModeDevice(std::unique_ptr<CudaDevice> gpu,
                                               const CudaOptions& options) {
  const CudaCosts costs = gpu->costs();
  auto device = std::make_unique<HostModeDevice>(std::move(gpu), options);
  device->set_costs(costs);
  return device;
}

}  // namespace muonstore::cuda
