// The part of CUDA's binary interface that is used here.
//
// What: names, types and constants of the functions that `Api` looks up at run
//   time, so that no toolkit is needed to build. Handles are opaque, statuses
//   and enumerations are ints, as they are in the libraries. Where the real
//   headers are there, tests/cuda/abi_check.cc holds these against them.

#ifndef MUONSTORE_SRC_CUDA_PLUGIN_ABI_H_
#define MUONSTORE_SRC_CUDA_PLUGIN_ABI_H_

#include <cstddef>

namespace muonstore::cuda {

using Handle = void*;  // Of a stream, event, module, function, program, ...

inline constexpr int kSuccess = 0;  // Of all four libraries.
inline constexpr int kErrorMemoryAllocation = 2;
inline constexpr int kErrorNoDevice = 100;
inline constexpr int kErrorNotReady = 600;
inline constexpr int kErrorHostMemoryAlreadyRegistered = 712;
// How pointers move: cudaMemcpyKind.
inline constexpr int kHostToDevice = 1;
inline constexpr int kDeviceToHost = 2;
inline constexpr int kDeviceToDevice = 3;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventBlockingSync = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr unsigned kHostAllocPortable = 1;

// cuBLAS: operations, types of elements and of sums, algorithm.
inline constexpr int kBlasN = 0;
inline constexpr int kBlasT = 1;
inline constexpr int kTypeF32 = 0;
inline constexpr int kTypeBF16 = 14;
inline constexpr int kComputeF32 = 68;
inline constexpr int kGemmDefault = -1;

// X(name, type) for each function of a library.
#define MUONSTORE_CUDART(X)                                        \
  X(cudaGetDeviceCount, int(int*))                                 \
  X(cudaSetDevice, int(int))                                       \
  X(cudaMalloc, int(void**, size_t))                               \
  X(cudaFree, int(void*))                                          \
  X(cudaHostAlloc, int(void**, size_t, unsigned))                  \
  X(cudaFreeHost, int(void*))                                      \
  X(cudaHostRegister, int(void*, size_t, unsigned))                \
  X(cudaHostUnregister, int(void*))                                \
  X(cudaMemcpyAsync, int(void*, const void*, size_t, int, Handle)) \
  X(cudaStreamCreateWithFlags, int(Handle*, unsigned))             \
  X(cudaStreamDestroy, int(Handle))                                \
  X(cudaStreamSynchronize, int(Handle))                            \
  X(cudaStreamWaitEvent, int(Handle, Handle, unsigned))            \
  X(cudaEventCreateWithFlags, int(Handle*, unsigned))              \
  X(cudaEventDestroy, int(Handle))                                 \
  X(cudaEventRecord, int(Handle, Handle))                          \
  X(cudaEventSynchronize, int(Handle))                             \
  X(cudaEventQuery, int(Handle))                                   \
  X(cudaGetLastError, int())                                       \
  X(cudaGetErrorString, const char*(int))

#define MUONSTORE_CUBLAS(X)                                                   \
  X(cublasCreate_v2, int(Handle*))                                            \
  X(cublasDestroy_v2, int(Handle))                                            \
  X(cublasSetStream_v2, int(Handle, Handle))                                  \
  X(cublasSetWorkspace_v2, int(Handle, void*, size_t))                        \
  X(cublasGemmStridedBatchedEx,                                               \
    int(Handle, int, int, int, int, int, const void*, const void*, int, int,  \
        long long, const void*, int, int, long long, const void*, void*, int, \
        int, long long, int, int, int))                                       \
  X(cublasGetStatusString, const char*(int))

#define MUONSTORE_CUDA_DRIVER(X)                                               \
  X(cuInit, int(unsigned))                                                     \
  X(cuModuleLoadData, int(Handle*, const void*))                               \
  X(cuModuleUnload, int(Handle))                                               \
  X(cuModuleGetFunction, int(Handle*, Handle, const char*))                    \
  X(cuLaunchKernel, int(Handle, unsigned, unsigned, unsigned, unsigned,        \
                        unsigned, unsigned, unsigned, Handle, void**, void**)) \
  X(cuGetErrorString, int(int, const char**))

#define MUONSTORE_NVRTC(X)                                           \
  X(nvrtcCreateProgram, int(Handle*, const char*, const char*, int,  \
                            const char* const*, const char* const*)) \
  X(nvrtcCompileProgram, int(Handle, int, const char* const*))       \
  X(nvrtcGetPTXSize, int(Handle, size_t*))                           \
  X(nvrtcGetPTX, int(Handle, char*))                                 \
  X(nvrtcGetProgramLogSize, int(Handle, size_t*))                    \
  X(nvrtcGetProgramLog, int(Handle, char*))                          \
  X(nvrtcDestroyProgram, int(Handle*))                               \
  X(nvrtcGetErrorString, const char*(int))

}  // namespace muonstore::cuda

#endif  // MUONSTORE_SRC_CUDA_PLUGIN_ABI_H_
