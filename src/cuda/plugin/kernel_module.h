// The kernels of kernels.cu on a device.
//
// What: loads what nvcc made of them, where the build had one and the driver
//   takes it, else compiles them by NVRTC; launches them by name.
// Ownership: owns the module. Threads: those of the device.
// Failures: Error(kUnavailable), with the compiler's log where it has one.

#ifndef MUONSTORE_SRC_CUDA_PLUGIN_KERNEL_MODULE_H_
#define MUONSTORE_SRC_CUDA_PLUGIN_KERNEL_MODULE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "src/cuda/plugin/owners.h"

namespace muonstore::cuda {

enum class Kernel {
  kSumSquares,
  kSumParts,
  kNormalize,
  kRound,
  kWiden,
  kAddToDiagonal,
};

// PTX of kernels.cu for every GPU from compute capability 7.5 on.
std::string CompileKernels(const Nvrtc& nvrtc);
// Made by nvcc when this was built; empty where there was none.
std::string_view BuiltKernels();
std::string_view KernelSource();

class KernelModule : public Owner {
 public:
  KernelModule(const Api& api, const std::string& nvrtc_library);
  KernelModule(const KernelModule&) = delete;
  KernelModule& operator=(const KernelModule&) = delete;
  ~KernelModule();

  // `threads` in each of `batch` rows of the grid, as far as a grid goes: the
  // kernels loop over what is beyond.
  struct Grid {
    int64_t threads = 1;
    int64_t batch = 1;
  };
  // Arguments have the very types of the kernel's parameters.
  template <typename... Arguments>
  void Launch(Kernel kernel, const Grid& grid, const Stream& stream,
              Arguments... arguments) const {
    std::array<void*, sizeof...(Arguments)> pointers = {&arguments...};
    LaunchWith(kernel, grid, stream, pointers.data());
  }

 private:
  void LaunchWith(Kernel kernel, const Grid& grid, const Stream& stream,
                  void** arguments) const;
  void Load(const std::string& nvrtc_library);

  static constexpr size_t kNumKernels = 6;

  Handle module_ = nullptr;
  std::array<Handle, kNumKernels> functions_ = {};
};

}  // namespace muonstore::cuda

#endif  // MUONSTORE_SRC_CUDA_PLUGIN_KERNEL_MODULE_H_
