// What one matrix costs on the GPU and on this host.
//
// Threads: one. Failures: what the device throws.

#ifndef MUONSTORE_SRC_CUDA_MEASURE_H_
#define MUONSTORE_SRC_CUDA_MEASURE_H_

#include "muonstore/cuda.h"

namespace muonstore::cuda {

// A square matrix of 1024, or as large as the device's limit lets it be.
CudaCosts MeasureCosts(CudaDevice& gpu, const CudaOptions& options);

}  // namespace muonstore::cuda

#endif  // MUONSTORE_SRC_CUDA_MEASURE_H_
