#include "src/cuda/plugin/gpu_device.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/cuda/plugin/kernel_module.h"
#include "src/cuda/plugin/newton_schulz_gpu.h"
#include "src/cuda/plugin/owners.h"
#include "src/cuda/plugin/work.h"

namespace muonstore::cuda {
namespace {

constexpr uint64_t kDefaultDeviceBytes = uint64_t{1} << 30;
// What cuBLAS is advised to have on large GPUs; a small limit leaves it less.
constexpr uint64_t kMaxBlasBytes = uint64_t{32} << 20;

uint64_t BlasBytes(uint64_t limit_bytes) {
  return std::max<uint64_t>(256, std::min(kMaxBlasBytes, limit_bytes / 16));
}

// Host memory that CUDA knows as page-locked.
class Registration : public IoMemory, public Owner {
 public:
  Registration(const Api& api, std::span<std::byte> memory)
      : Owner(api), memory_(memory) {
    report_.total_bytes = report_.registered_bytes = memory.size();
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration() override { api_.cudaHostUnregister(memory_.data()); }
  const IoMemoryReport& report() const override { return report_; }

 private:
  std::span<std::byte> memory_;
  IoMemoryReport report_;
};

class GpuDevice : public CudaDevice {
 public:
  GpuDevice(const Api& api, const CudaOptions& options)
      : api_(api),
        options_(options),
        name_(StrCat("cuda:", options.device)),
        budget_{.limit_bytes = options.max_device_bytes != 0
                                   ? options.max_device_bytes
                                   : kDefaultDeviceBytes,
                .is_hard = options.max_device_bytes != 0},
        chosen_(api, options.device),
        kernels_(api_, options.libraries.nvrtc),
        up_(api_),
        compute_(api_),
        down_(api_),
        blas_memory_(api_, budget_, BlasBytes(budget_.limit_bytes)),
        blas_(api_, compute_, blas_memory_) {}
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;
  ~GpuDevice() override {
    try {
      SynchronizeAll();
    } catch (const std::exception&) {
      // Memory goes all the same.
    }
  }

  std::string_view name() const override { return name_; }
  CudaMode mode() const override { return CudaMode::kStream; }
  bool works_in_host_memory() const override { return false; }
  void OrthogonalizeInPlace(std::span<const OrthogonalizeJob>) override {
    throw Error(ErrorCode::kInternal, "this device has memory of its own");
  }

  uint64_t max_memory_bytes() const override;
  uint64_t WorkspaceBytes(int64_t rows, int64_t cols) const override;
  DeviceUsage usage() const override;
  std::unique_ptr<IoMemory> RegisterMemory(
      std::span<std::byte> memory) override;

  std::unique_ptr<DeviceBuffer> Allocate(uint64_t size_bytes) override;
  PendingPtr CopyIn(DeviceBuffer& to, std::span<const std::byte> from) override;
  PendingPtr Orthogonalize(DeviceBuffer& buffer,
                           const DeviceMatrices& matrices) override;
  PendingPtr CopyOut(std::span<std::byte> to,
                     const DeviceBuffer& from) override;
  PendingPtr Download(std::span<std::byte> to, const void* from,
                      void* stream) override;
  PendingPtr Upload(void* to, std::span<const std::byte> from,
                    void* stream) override;
  void Drain() override { SynchronizeAll(); }

 private:
  // Makes the GPU the calling thread's, and starts CUDA on it.
  struct ChosenDevice {
    ChosenDevice(const Api& api, int32_t device) {
      api.Check(api.cudaSetDevice(device), "cudaSetDevice");
      api.Check(api.cudaFree(nullptr), "cudaFree");
    }
  };

  void Enter() const {
    api_.Check(api_.cudaSetDevice(options_.device), "cudaSetDevice");
  }
  // Puts `work` on `stream`, after `before` where that is not null.
  std::shared_ptr<Event> Start(const Stream& stream, const Event* before,
                               const std::function<void()>& work);
  PendingPtr StartOn(const GpuBuffer& buffer, const Stream& stream,
                     BatchSums sums, const std::function<void()>& work);
  PendingPtr StartAfterCaller(const Stream& stream, Handle caller,
                              const std::function<void()>& work);
  void Copy(void* to, const void* from, uint64_t size, int kind,
            const Stream& stream) const;
  void SynchronizeAll();
  void ReserveWorkspace(const DeviceMatrices& matrices);
  static void RequireRoom(uint64_t size_bytes, const DeviceBuffer& buffer);

  const Api api_;
  CudaOptions options_;
  std::string name_;
  MemoryBudget budget_;
  DeviceUsage usage_;
  ChosenDevice chosen_;
  KernelModule kernels_;
  Stream up_;
  Stream compute_;
  Stream down_;
  DeviceMemory blas_memory_;
  Blas blas_;
  std::unique_ptr<DeviceMemory> workspace_;
};

uint64_t GpuDevice::max_memory_bytes() const {
  return budget_.is_hard ? budget_.limit_bytes - blas_memory_.size_bytes() : 0;
}

uint64_t GpuDevice::WorkspaceBytes(int64_t rows, int64_t cols) const {
  return GpuWorkspaceBytes(MakeGpuPlan(options_.newton_schulz, rows, cols), 1);
}

DeviceUsage GpuDevice::usage() const {
  DeviceUsage usage = usage_;
  usage.peak_bytes = budget_.peak_bytes;
  return usage;
}

std::unique_ptr<IoMemory> GpuDevice::RegisterMemory(
    std::span<std::byte> memory) {
  if (memory.empty()) return nullptr;
  Enter();
  const int status = api_.cudaHostRegister(memory.data(), memory.size(),
                                           kHostRegisterPortable);
  // Ordinary memory, and what the tier registered already, will do as well.
  if (status != kSuccess) {
    api_.cudaGetLastError();
    return nullptr;
  }
  return std::make_unique<Registration>(api_, memory);
}

std::unique_ptr<DeviceBuffer> GpuDevice::Allocate(uint64_t size_bytes) {
  Enter();
  return std::make_unique<GpuBuffer>(api_, budget_, size_bytes);
}

std::shared_ptr<Event> GpuDevice::Start(const Stream& stream,
                                        const Event* before,
                                        const std::function<void()>& work) {
  auto end = std::make_shared<Event>(api_);
  if (before != nullptr) {
    api_.Check(api_.cudaStreamWaitEvent(stream.handle(), before->handle(), 0),
               "cudaStreamWaitEvent");
  }
  try {
    work();
    api_.Check(api_.cudaEventRecord(end->handle(), stream.handle()),
               "cudaEventRecord");
  } catch (...) {
    // A part of it may be under way in memory that the caller takes back.
    api_.cudaStreamSynchronize(stream.handle());
    throw;
  }
  return end;
}

PendingPtr GpuDevice::StartOn(const GpuBuffer& buffer, const Stream& stream,
                              BatchSums sums,
                              const std::function<void()>& work) {
  std::shared_ptr<Event> end = Start(stream, buffer.last().get(), work);
  buffer.set_last(end);
  return std::make_unique<Work>(api_, std::move(end), std::move(sums));
}

PendingPtr GpuDevice::StartAfterCaller(const Stream& stream, Handle caller,
                                       const std::function<void()>& work) {
  const Event before(api_);
  api_.Check(api_.cudaEventRecord(before.handle(), caller), "cudaEventRecord");
  return std::make_unique<Work>(api_, Start(stream, &before, work),
                                BatchSums{});
}

void GpuDevice::Copy(void* to, const void* from, uint64_t size, int kind,
                     const Stream& stream) const {
  if (size == 0) return;
  api_.Check(api_.cudaMemcpyAsync(to, from, size, kind, stream.handle()),
             "cudaMemcpyAsync");
}

void GpuDevice::RequireRoom(uint64_t size_bytes, const DeviceBuffer& buffer) {
  if (size_bytes <= buffer.size_bytes()) return;
  throw Error(ErrorCode::kInvalidArgument,
              "a device buffer is too small for what it is given",
              {.expected = StrCat("at most ", buffer.size_bytes(), " bytes"),
               .found = StrCat(size_bytes)});
}

PendingPtr GpuDevice::CopyIn(DeviceBuffer& to,
                             std::span<const std::byte> from) {
  Enter();
  RequireRoom(from.size(), to);
  const auto& buffer = static_cast<const GpuBuffer&>(to);
  usage_.in_bytes += from.size();
  return StartOn(buffer, up_, {}, [&] {
    Copy(buffer.data(), from.data(), from.size(), kHostToDevice, up_);
  });
}

PendingPtr GpuDevice::CopyOut(std::span<std::byte> to,
                              const DeviceBuffer& from) {
  Enter();
  RequireRoom(to.size(), from);
  const auto& buffer = static_cast<const GpuBuffer&>(from);
  usage_.out_bytes += to.size();
  return StartOn(buffer, down_, {}, [&] {
    Copy(to.data(), buffer.data(), to.size(), kDeviceToHost, down_);
  });
}

// As much as the batch can use, as far as the limit goes; one matrix's always.
void GpuDevice::ReserveWorkspace(const DeviceMatrices& matrices) {
  const GpuPlan plan =
      MakeGpuPlan(options_.newton_schulz, matrices.rows, matrices.cols);
  const uint64_t held = workspace_ != nullptr ? workspace_->size_bytes() : 0;
  const uint64_t least = GpuWorkspaceBytes(plan, 1);
  const uint64_t size =
      std::clamp(budget_.left_bytes() + held, least,
                 GpuWorkspaceBytes(plan, std::max<int64_t>(1, matrices.batch)));
  if (held >= size) return;
  compute_.Synchronize();  // The old one is in use until then.
  workspace_.reset();
  workspace_ = std::make_unique<DeviceMemory>(api_, budget_, size);
}

PendingPtr GpuDevice::Orthogonalize(DeviceBuffer& buffer,
                                    const DeviceMatrices& matrices) {
  Enter();
  auto& own = static_cast<GpuBuffer&>(buffer);
  const auto count =
      static_cast<uint64_t>(matrices.batch * matrices.rows * matrices.cols);
  RequireRoom(count * sizeof(float), buffer);
  ReserveWorkspace(matrices);
  BatchSums sums;
  if (count > 0) {
    sums = {.memory = own.TakeSums(matrices.batch), .matrices = matrices};
  }
  return StartOn(own, compute_, sums, [&] {
    if (count == 0) return;
    EnqueueNewtonSchulz(
        {api_, options_.newton_schulz, kernels_, blas_, compute_},
        reinterpret_cast<float*>(own.data()), matrices,
        {workspace_->data(), workspace_->size_bytes()},
        {reinterpret_cast<double*>(sums.memory->bytes().data()),
         static_cast<size_t>(matrices.batch)});
  });
}

PendingPtr GpuDevice::Download(std::span<std::byte> to, const void* from,
                               void* stream) {
  Enter();
  usage_.out_bytes += to.size();
  return StartAfterCaller(down_, stream, [&] {
    Copy(to.data(), from, to.size(), kDeviceToHost, down_);
  });
}

PendingPtr GpuDevice::Upload(void* to, std::span<const std::byte> from,
                             void* stream) {
  Enter();
  usage_.in_bytes += from.size();
  return StartAfterCaller(up_, stream, [&] {
    Copy(to, from.data(), from.size(), kHostToDevice, up_);
  });
}

void GpuDevice::SynchronizeAll() {
  // All of it, also when the first one fails.
  const int chosen = api_.cudaSetDevice(options_.device);
  const int up = api_.cudaStreamSynchronize(up_.handle());
  const int compute = api_.cudaStreamSynchronize(compute_.handle());
  const int down = api_.cudaStreamSynchronize(down_.handle());
  api_.Check(chosen, "cudaSetDevice");
  for (const int status : {up, compute, down}) {
    api_.Check(status, "cudaStreamSynchronize");
  }
}

}  // namespace

std::unique_ptr<CudaDevice> MakeGpuDevice(const Api& api,
                                          const CudaOptions& options) {
  return std::make_unique<GpuDevice>(api, options);
}

}  // namespace muonstore::cuda
