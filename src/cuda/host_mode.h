// Mode `host`: matrices stay in host memory, the GPU is there for transfers.
//
// Ownership: owns the GPU's device and threads of its own. Threads, failures:
//   muonstore/cuda.h.

#ifndef MUONSTORE_SRC_CUDA_HOST_MODE_H_
#define MUONSTORE_SRC_CUDA_HOST_MODE_H_

#include <memory>

#include "muonstore/cuda.h"

namespace muonstore::cuda {

std::unique_ptr<CudaDevice> MakeHostModeDevice(std::unique_ptr<CudaDevice> gpu,
                                               const CudaOptions& options);

}  // namespace muonstore::cuda

#endif  // MUONSTORE_SRC_CUDA_HOST_MODE_H_
