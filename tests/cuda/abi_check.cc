// The plug-in's declarations against CUDA's own headers. It compiles: that is
// the test. CMakeLists.txt builds it where the headers are.
#include <cublas_v2.h>
#include <nvrtc.h>

#include <type_traits>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "src/cuda/plugin/abi.h"

namespace muonstore::cuda {

// In C++ cuBLAS overloads it; that the library's own has this type is checked
// below. Declared for its type alone.
cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
    const void*, const void*, cudaDataType, int, long long, const void*,
    cudaDataType, int, long long, const void*, void*, cudaDataType, int,
    long long, int, cublasComputeType_t, cublasGemmAlgo_t);

namespace {

[[maybe_unused]] constexpr decltype(&cublasGemmStridedBatchedEx) kOverload =
    &::cublasGemmStridedBatchedEx;

// Equal to the caller of a function: pointers for pointers, whole numbers and
// enumerations of one size for another.
template <typename Ours, typename Theirs>
constexpr bool kSameInCall =
    std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
    sizeof(Ours) == sizeof(Theirs) &&
    std::is_floating_point_v<Ours> == std::is_floating_point_v<Theirs>;

template <typename Ours, typename Theirs>
struct SameFunction : std::false_type {};

template <typename OurResult, typename... Ours, typename TheirResult,
          typename... Theirs>
requires(sizeof...(Ours) ==
         sizeof...(Theirs)) struct SameFunction<OurResult(Ours...),
                                                TheirResult(Theirs...)>
    : std::bool_constant<kSameInCall<OurResult, TheirResult> &&
                         (kSameInCall<Ours, Theirs> && ...)> {
};

#define MUONSTORE_CHECK(name, ...) \
  static_assert(SameFunction<__VA_ARGS__, decltype(name)>::value, #name);

MUONSTORE_CUDART(MUONSTORE_CHECK)
MUONSTORE_CUBLAS(MUONSTORE_CHECK)
MUONSTORE_CUDA_DRIVER(MUONSTORE_CHECK)
MUONSTORE_NVRTC(MUONSTORE_CHECK)

static_assert(kSuccess == cudaSuccess && kSuccess == CUBLAS_STATUS_SUCCESS &&
              kSuccess == CUDA_SUCCESS && kSuccess == NVRTC_SUCCESS);
static_assert(kErrorMemoryAllocation == cudaErrorMemoryAllocation);
static_assert(kErrorMemoryAllocation == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(kErrorNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kErrorNotReady == cudaErrorNotReady);
static_assert(kHostToDevice == cudaMemcpyHostToDevice);
static_assert(kDeviceToHost == cudaMemcpyDeviceToHost);
static_assert(kDeviceToDevice == cudaMemcpyDeviceToDevice);
static_assert(kStreamNonBlocking == cudaStreamNonBlocking);
static_assert(kEventBlockingSync == cudaEventBlockingSync);
static_assert(kEventDisableTiming == cudaEventDisableTiming);
static_assert(kHostRegisterPortable == cudaHostRegisterPortable);
static_assert(kHostAllocPortable == cudaHostAllocPortable);
static_assert(kBlasN == CUBLAS_OP_N && kBlasT == CUBLAS_OP_T);
static_assert(kTypeF32 == CUDA_R_32F && kTypeBF16 == CUDA_R_16BF);
static_assert(kComputeF32 == CUBLAS_COMPUTE_32F);
static_assert(kGemmDefault == CUBLAS_GEMM_DEFAULT);

}  // namespace
}  // namespace muonstore::cuda
