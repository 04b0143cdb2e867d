#include "src/tier/cuda_host.h"

#include <dlfcn.h>

#include <algorithm>

#include "src/base/str.h"

namespace muonstore::tier {
namespace {

constexpr int kCudaSuccess = 0;
// cudaHostRegisterPortable: pinned for every device of the process.
constexpr unsigned kPortable = 1;

template <typename Function>
Function Find(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

}  // namespace

std::vector<std::string> CudaHost::DefaultLibraries() {
  return {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0",
          "libcudart.so"};
}

CudaHost::CudaHost(const std::vector<std::string>& libraries) {
  (void)std::ranges::any_of(
      libraries, [this](const std::string& name) { return Load(name); });
}

bool CudaHost::Load(const std::string& library) {
  // CUDA runs code at exit: once loaded it must stay.
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_NODELETE);
  if (handle == nullptr) {
    return false;
  }
  using CountFunction = int (*)(int*);
  const auto count_devices = Find<CountFunction>(handle, "cudaGetDeviceCount");
  const auto reg = Find<RegisterFunction>(handle, "cudaHostRegister");
  const auto unreg = Find<UnregisterFunction>(handle, "cudaHostUnregister");
  ::dlclose(handle);
  int num_devices = 0;
  if (count_devices == nullptr || reg == nullptr || unreg == nullptr ||
      count_devices(&num_devices) != kCudaSuccess || num_devices < 1) {
    return false;
  }
  register_ = reg;
  unregister_ = unreg;
  return true;
}

std::string CudaHost::Register(std::span<std::byte> memory) const {
  const int status = register_(memory.data(), memory.size(), kPortable);
  return status == kCudaSuccess
             ? std::string()
             : StrCat("cudaHostRegister gave error ", status);
}

void CudaHost::Unregister(std::span<std::byte> memory) const {
  unregister_(memory.data());
}

}  // namespace muonstore::tier
