#include "src/cuda/plugin/api.h"

#include <dlfcn.h>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::cuda {
namespace {

// The libraries of the toolkits that abi.h fits.
std::vector<std::string> NamesOf(const std::string& chosen, const char* stem) {
  if (!chosen.empty()) return {chosen};
  return {StrCat(stem, ".so.13"), StrCat(stem, ".so.12"), StrCat(stem, ".so")};
}

void* Open(const std::vector<std::string>& names, std::string& reason) {
  for (const std::string& name : names) {
    void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_NODELETE);
    if (library != nullptr) return library;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc keeps one text per thread.
    const char* error = ::dlerror();
    if (!reason.empty()) reason += "; ";
    reason += error != nullptr ? error : name;
  }
  return nullptr;
}

template <typename Function>
void Find(void* library, const char* name, Function*& function,
          std::string& missing) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (function == nullptr && missing.empty()) missing = StrCat("no ", name);
}

[[noreturn]] void Throw(ErrorCode code, const char* function, int status,
                        const char* reason) {
  throw Error(code, StrCat(function, " failed with status ", status, ": ",
                           reason != nullptr ? reason : "no reason given"));
}

CudaAnswer Missing(CudaState state, const std::string& what,
                   const std::string& reason) {
  return {.state = state,
          .message = StrCat("no CUDA device: ", what, " (", reason, ")")};
}

}  // namespace

#define MUONSTORE_FIND(name, ...) Find(library, #name, table.name, reason);

Nvrtc Nvrtc::Load(const std::string& name) {
  Nvrtc table;
  std::string reason;
  void* library = Open(NamesOf(name, "libnvrtc"), reason);
  if (library != nullptr) {
    reason.clear();
    MUONSTORE_NVRTC(MUONSTORE_FIND)
  }
  if (!reason.empty()) {
    throw Error(ErrorCode::kUnavailable,
                StrCat("NVRTC, which compiles this GPU's kernels, is not "
                       "usable (",
                       reason, "); install the CUDA toolkit's libnvrtc"));
  }
  return table;
}

void Nvrtc::Check(int status, const char* function) const {
  if (status == kSuccess) return;
  Throw(ErrorCode::kUnavailable, function, status, nvrtcGetErrorString(status));
}

CudaAnswer Api::LoadDriver(const std::string& name, Api& table) {
  std::string reason;
  void* library =
      Open({name.empty() ? std::string("libcuda.so.1") : name}, reason);
  if (library == nullptr) {
    return Missing(CudaState::kNoDriver, "no driver is installed", reason);
  }
  reason.clear();
  MUONSTORE_CUDA_DRIVER(MUONSTORE_FIND)
  if (!reason.empty()) {
    return Missing(CudaState::kNoDriver, "the driver is too old", reason);
  }
  const int status = table.cuInit(0);
  if (status == kErrorNoDevice) {
    return Missing(CudaState::kNoDevice, "the driver sees no GPU", "cuInit");
  }
  if (status != kSuccess) {
    return Missing(CudaState::kNoDriver, "the driver does not start",
                   StrCat("cuInit gave ", status));
  }
  return {.state = CudaState::kReady};
}

CudaAnswer Api::LoadRuntime(const CudaLibraries& libraries, Api& table) {
  std::string reason;
  void* library = Open(NamesOf(libraries.runtime, "libcudart"), reason);
  if (library == nullptr) {
    return Missing(CudaState::kNoRuntime, "the CUDA runtime is not there",
                   reason);
  }
  reason.clear();
  MUONSTORE_CUDART(MUONSTORE_FIND)
  if (!reason.empty()) {
    return Missing(CudaState::kNoRuntime, "the CUDA runtime is too old",
                   reason);
  }
  library = Open(NamesOf(libraries.blas, "libcublas"), reason);
  if (library == nullptr) {
    return Missing(CudaState::kNoRuntime, "cuBLAS is not there", reason);
  }
  reason.clear();
  MUONSTORE_CUBLAS(MUONSTORE_FIND)
  if (!reason.empty()) {
    return Missing(CudaState::kNoRuntime, "cuBLAS is too old", reason);
  }
  return {.state = CudaState::kReady};
}

CudaAnswer Api::Load(const CudaOptions& options, Api& api) {
  CudaAnswer answer = LoadDriver(options.libraries.driver, api);
  if (answer.state != CudaState::kReady) return answer;
  answer = LoadRuntime(options.libraries, api);
  if (answer.state != CudaState::kReady) return answer;
  const int status = api.cudaGetDeviceCount(&answer.num_devices);
  if (status != kSuccess) {
    // Not to be found again by a later call of somebody else.
    api.cudaGetLastError();
    return Missing(CudaState::kNoDevice, "the CUDA runtime sees no GPU",
                   api.cudaGetErrorString(status));
  }
  if (options.device < 0 || options.device >= answer.num_devices) {
    CudaAnswer none =
        Missing(CudaState::kNoDevice,
                StrCat("there is none of number ", options.device),
                StrCat("the runtime sees ", answer.num_devices));
    none.num_devices = answer.num_devices;
    return none;
  }
  return answer;
}

void Api::Check(int status, const char* function) const {
  if (status == kSuccess) return;
  cudaGetLastError();
  Throw(status == kErrorMemoryAllocation ? ErrorCode::kResourceExhausted
                                         : ErrorCode::kUnavailable,
        function, status, cudaGetErrorString(status));
}

void Api::CheckBlas(int status, const char* function) const {
  if (status == kSuccess) return;
  Throw(ErrorCode::kUnavailable, function, status,
        cublasGetStatusString(status));
}

void Api::CheckDriver(int status, const char* function) const {
  if (status == kSuccess) return;
  const char* reason = nullptr;
  cuGetErrorString(status, &reason);
  Throw(status == kErrorMemoryAllocation ? ErrorCode::kResourceExhausted
                                         : ErrorCode::kUnavailable,
        function, status, reason);
}

}  // namespace muonstore::cuda
