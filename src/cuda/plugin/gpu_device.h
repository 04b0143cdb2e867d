// A GPU in mode `stream`.
//
// What: three streams, for copies up, work, and copies down, so that two
//   batches overlap; within a buffer events keep the order of starts. One
//   workspace serves all work, which is one batch at a time.
// Ownership: buffers, handles and registered memory go before the device.
// Threads, failures: muonstore/cuda.h. A call that fails after it
//   put something on a stream waits for the streams before it throws, so that
//   nothing reads or writes the caller's memory any more.

#ifndef MUONSTORE_SRC_CUDA_PLUGIN_GPU_DEVICE_H_
#define MUONSTORE_SRC_CUDA_PLUGIN_GPU_DEVICE_H_

#include <memory>

#include "muonstore/cuda.h"
#include "src/cuda/plugin/api.h"

namespace muonstore::cuda {

std::unique_ptr<CudaDevice> MakeGpuDevice(const Api& api,
                                          const CudaOptions& options);

}  // namespace muonstore::cuda

#endif  // MUONSTORE_SRC_CUDA_PLUGIN_GPU_DEVICE_H_
