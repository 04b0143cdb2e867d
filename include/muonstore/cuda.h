// NVIDIA GPUs as devices, through a plug-in that is found at run time.
//
// What: `MakeCudaDevice` gives the executor a device. In mode `stream` every
//   matrix goes up, is orthogonalized there by cuBLAS and comes back, two
//   batches in flight. In mode `host` matrices stay and the processor works on
//   them: all that crosses the bus is gradients down and weights up, which
//   `DeviceTransfers` does in either mode. docs/cuda.md has the rest.
// Ownership: a device owns its streams, its memory and a hold on the libraries,
//   which stay loaded until the process ends.
// Threads: one thread at a time for each device. CUDA does not survive a fork:
//   processes that fork make their devices afterwards.
// Failures: no plug-in, no driver, no runtime and no device are ordinary
//   answers of `ProbeCuda`; `MakeCudaDevice` throws them as
//   Error(kUnavailable) that says which. Error(kResourceExhausted) for device
//   memory, Error(kUnavailable) for any other call of CUDA that fails, with its
//   name and reason.

#ifndef MUONSTORE_CUDA_H_
#define MUONSTORE_CUDA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "muonstore/communicator.h"
#include "muonstore/device.h"
#include "muonstore/dtype.h"
#include "muonstore/executor.h"
#include "muonstore/newton_schulz.h"
#include "muonstore/store.h"

namespace muonstore {

enum class CudaMode {
  kAutomatic,  // Whichever a measurement at the start finds faster.
  kStream,     // Matrices are orthogonalized on the GPU.
  kHost,       // Matrices are orthogonalized by this host's processor.
};

// File names of libraries, for the dynamic loader. Empty: the usual ones.
struct CudaLibraries {
  std::string plugin = {};   // libmuonstore_cuda.so
  std::string driver = {};   // libcuda.so.1
  std::string runtime = {};  // libcudart.so.13, .12
  std::string blas = {};     // libcublas.so.13, .12
  std::string nvrtc = {};    // libnvrtc.so.13, .12
};

struct CudaOptions {
  int32_t device = 0;
  CudaMode mode = CudaMode::kAutomatic;
  // The executor's. Precision and coefficients hold on the GPU too; the form is
  // chosen by what products cost there.
  NewtonSchulzOptions newton_schulz;
  // Device memory that matrices and their workspace take. 0: 1 GiB, or two
  // batches and the work on one matrix where that is more. A limit that is set
  // is hard: a matrix that does not fit is an error of the executor's
  // constructor. Contexts and libraries take memory of their own beside it.
  uint64_t max_device_bytes = 0;
  // Modes `host` and `automatic`: threads of this host.
  int num_threads = 1;
  // Mode `automatic` with several ranks: collective, so that all choose alike.
  std::shared_ptr<Communicator> communicator;
  CudaLibraries libraries;
};

enum class CudaState {
  kReady,
  kNoPlugin,   // libmuonstore_cuda.so was not built or is not found.
  kNoDriver,   // libcuda.so.1 is not there or does not start.
  kNoRuntime,  // The CUDA runtime, cuBLAS or NVRTC is not there.
  kNoDevice,   // No GPU, or none of this number.
};

struct CudaAnswer {
  CudaState state = CudaState::kNoPlugin;
  // A sentence with what is missing and what to do; empty when ready.
  std::string message;
  int32_t num_devices = 0;
};

// Asks without taking device memory.
CudaAnswer ProbeCuda(const CudaOptions& options);

// What mode `automatic` measured; zero in the other modes. Seconds for one
// square matrix of `side`: there, work and back; by this host.
struct CudaCosts {
  int64_t side = 0;
  double stream_s = 0;
  double host_s = 0;
};

// Of equal costs the GPU's, which leaves the processor free.
CudaMode CheaperMode(const CudaCosts& costs);

class CudaDevice : public Device {
 public:
  // Never kAutomatic.
  virtual CudaMode mode() const = 0;
  const CudaCosts& costs() const { return costs_; }
  void set_costs(const CudaCosts& costs) { costs_ = costs; }

  // Copies between host memory and `size` bytes of the caller's own device
  // memory, after all that was put on the caller's `stream` (a cudaStream_t)
  // before. Memory stays as it is until Wait has returned.
  virtual PendingPtr Download(std::span<std::byte> to, const void* from,
                              void* stream) = 0;
  virtual PendingPtr Upload(void* to, std::span<const std::byte> from,
                            void* stream) = 0;

 private:
  CudaCosts costs_;
};

std::shared_ptr<CudaDevice> MakeCudaDevice(const CudaOptions& options);

// Of one parameter, in device memory, row-major.
struct DeviceGradient {
  std::string name;
  DType dtype = DType::kBF16;  // f32, bf16 or f16.
  const void* data = nullptr;
  int64_t num_elements = 0;
};

struct DeviceWeight {
  std::string name;
  void* data = nullptr;
  uint64_t size_bytes = 0;  // Checked against the parameter's.
};

// Takes gradients from, and brings weights to, device memory: each byte crosses
// once, through two pinned buffers, so that one part is copied while the other
// is worked on. Refers to the device; one thread at a time.
class DeviceTransfers {
 public:
  // `staging_bytes`: of both buffers together; at least 16.
  explicit DeviceTransfers(std::shared_ptr<CudaDevice> device,
                           uint64_t staging_bytes = uint64_t{64} << 20);
  ~DeviceTransfers();
  DeviceTransfers(const DeviceTransfers&) = delete;
  DeviceTransfers& operator=(const DeviceTransfers&) = delete;

  // As OffloadExecutor::Accumulate for each of them. Begins after what is on
  // the caller's `stream`; when it returns, gradients may be overwritten.
  void Accumulate(OffloadExecutor& executor,
                  std::span<const DeviceGradient> gradients, void* stream);
  // Collective, with the same names in the same order on every rank: the whole
  // compute weights of these parameters. They are there when it returns.
  void SendWeights(StateStore& store, std::span<const DeviceWeight> weights,
                   void* stream);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muonstore

#endif  // MUONSTORE_CUDA_H_
