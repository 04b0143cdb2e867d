#include "src/cuda/plugin/owners.h"

#include <algorithm>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::cuda {

Stream::Stream(const Api& api) : Owner(api) {
  api_.Check(api_.cudaStreamCreateWithFlags(&handle_, kStreamNonBlocking),
             "cudaStreamCreateWithFlags");
}

Stream::~Stream() { api_.cudaStreamDestroy(handle_); }

void Stream::Synchronize() const {
  api_.Check(api_.cudaStreamSynchronize(handle_), "cudaStreamSynchronize");
}

Event::Event(const Api& api) : Owner(api) {
  api_.Check(api_.cudaEventCreateWithFlags(
                 &handle_, kEventBlockingSync | kEventDisableTiming),
             "cudaEventCreateWithFlags");
}

Event::~Event() { api_.cudaEventDestroy(handle_); }

DeviceMemory::DeviceMemory(const Api& api, MemoryBudget& budget,
                           uint64_t size_bytes)
    : Owner(api), budget_(budget), size_bytes_(size_bytes) {
  if (budget.is_hard && size_bytes > budget.left_bytes()) {
    throw Error(ErrorCode::kResourceExhausted,
                "device memory would go beyond CudaOptions::max_device_bytes; "
                "raise it",
                {.expected = StrCat("at most ", budget.left_bytes(), " of ",
                                    budget.limit_bytes, " bytes"),
                 .found = StrCat(size_bytes)});
  }
  api_.Check(api_.cudaMalloc(&data_, size_bytes), "cudaMalloc");
  budget_.used_bytes += size_bytes;
  budget_.peak_bytes = std::max(budget_.peak_bytes, budget_.used_bytes);
}

DeviceMemory::~DeviceMemory() {
  api_.cudaFree(data_);
  budget_.used_bytes -= size_bytes_;
}

PinnedMemory::PinnedMemory(const Api& api, uint64_t size_bytes)
    : Owner(api), size_bytes_(size_bytes) {
  api_.Check(api_.cudaHostAlloc(&data_, size_bytes_, kHostAllocPortable),
             "cudaHostAlloc");
}

PinnedMemory::~PinnedMemory() { api_.cudaFreeHost(data_); }

Blas::Blas(const Api& api, const Stream& stream, const DeviceMemory& workspace)
    : Owner(api) {
  api_.CheckBlas(api_.cublasCreate_v2(&handle_), "cublasCreate");
  try {
    api_.CheckBlas(api_.cublasSetStream_v2(handle_, stream.handle()),
                   "cublasSetStream");
    // After the stream, which would take it back to memory of cuBLAS's own.
    api_.CheckBlas(api_.cublasSetWorkspace_v2(handle_, workspace.data(),
                                              workspace.size_bytes()),
                   "cublasSetWorkspace");
  } catch (...) {
    api_.cublasDestroy_v2(handle_);
    throw;
  }
}

Blas::~Blas() { api_.cublasDestroy_v2(handle_); }

}  // namespace muonstore::cuda
