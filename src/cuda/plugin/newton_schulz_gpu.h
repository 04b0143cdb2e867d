// Newton-Schulz on a GPU: which products, in which memory.
//
// What: enqueues the iteration for a batch of dense f32 matrices in place.
//   Products are cuBLAS's over whole batches; with kBF16 their operands are
//   rounded to bf16 while sums and X are f32, X until the last two steps, as on
//   the host. A batch that does not fit the workspace runs in parts.
// Bits: the same in every run on one GPU and cuBLAS; not the host's.
// Ownership: refers to its arguments.
// Threads: the device's. Failures: Error(kUnsupported) for a side beyond
//   cuBLAS's 32-bit numbers; what CUDA's calls throw.

#ifndef MUONSTORE_SRC_CUDA_PLUGIN_NEWTON_SCHULZ_GPU_H_
#define MUONSTORE_SRC_CUDA_PLUGIN_NEWTON_SCHULZ_GPU_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "muonstore/device.h"
#include "muonstore/newton_schulz.h"
#include "src/cuda/plugin/kernel_module.h"
#include "src/cuda/plugin/owners.h"

namespace muonstore::cuda {

// How matrices of a shape are orthogonalized.
struct GpuPlan {
  int64_t n = 0;  // The smaller side.
  int64_t m = 0;
  bool wide = false;  // Rows are the smaller side.
  bool gram = false;
  bool bf16 = false;
  // Partial sums of squares of a matrix.
  int64_t num_parts = 0;

  int64_t elements() const { return n * m; }
};

GpuPlan MakeGpuPlan(const NewtonSchulzOptions& options, int64_t rows,
                    int64_t cols);
// Of `batch` matrices at a time.
uint64_t GpuWorkspaceBytes(const GpuPlan& plan, int64_t batch);

struct GpuNewtonSchulzParts {
  const Api& api;
  const NewtonSchulzOptions& options;
  const KernelModule& kernels;
  const Blas& blas;
  const Stream& stream;  // That of `blas`.
};

// `sums` gets each matrix's sum of squares, which is not finite where an
// element is not; the result of such a matrix means nothing. `workspace` has
// the GpuWorkspaceBytes of one matrix or more.
void EnqueueNewtonSchulz(const GpuNewtonSchulzParts& parts, float* x,
                         const DeviceMatrices& matrices,
                         std::span<std::byte> workspace,
                         std::span<double> sums);

}  // namespace muonstore::cuda

#endif  // MUONSTORE_SRC_CUDA_PLUGIN_NEWTON_SCHULZ_GPU_H_
