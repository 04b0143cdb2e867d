#include "src/cuda/plugin/kernel_module.h"

#include <algorithm>
#include <vector>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::cuda {
namespace {

constexpr int64_t kBlockThreads = 256;
// Enough to fill a GPU; more would only be waiting.
constexpr int64_t kMaxBlocks = 4096;

constexpr std::array<const char*, 6> kNames = {
    "SumSquares", "SumParts", "Normalize", "Round", "Widen", "AddToDiagonal"};

// A program of NVRTC.
class Program {
 public:
  explicit Program(const Nvrtc& nvrtc) : nvrtc_(nvrtc) {
    nvrtc_.Check(
        nvrtc_.nvrtcCreateProgram(&handle_, std::string(KernelSource()).c_str(),
                                  "kernels.cu", 0, nullptr, nullptr),
        "nvrtcCreateProgram");
  }
  ~Program() { nvrtc_.nvrtcDestroyProgram(&handle_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void Compile() {
    // One text for all GPUs: the driver makes machine code of it.
    const std::array<const char*, 2> options = {"--gpu-architecture=compute_75",
                                                "--std=c++17"};
    const int status =
        nvrtc_.nvrtcCompileProgram(handle_, options.size(), options.data());
    if (status == kSuccess) return;
    throw Error(ErrorCode::kUnavailable,
                StrCat("NVRTC refuses the kernels with status ", status, ": ",
                       Printable(Log())));
  }

  std::string Ptx() {
    size_t size = 0;
    nvrtc_.Check(nvrtc_.nvrtcGetPTXSize(handle_, &size), "nvrtcGetPTXSize");
    std::string ptx(size, '\0');
    nvrtc_.Check(nvrtc_.nvrtcGetPTX(handle_, ptx.data()), "nvrtcGetPTX");
    return ptx;
  }

 private:
  std::string Log() {
    size_t size = 0;
    if (nvrtc_.nvrtcGetProgramLogSize(handle_, &size) != kSuccess) return "";
    std::string log(size, '\0');
    const int status = nvrtc_.nvrtcGetProgramLog(handle_, log.data());
    return status == kSuccess ? log : std::string();
  }

  const Nvrtc& nvrtc_;
  Handle handle_ = nullptr;
};

}  // namespace

std::string CompileKernels(const Nvrtc& nvrtc) {
  Program program(nvrtc);
  program.Compile();
  return program.Ptx();
}

KernelModule::KernelModule(const Api& api, const std::string& nvrtc_library)
    : Owner(api) {
  Load(nvrtc_library);
  try {
    for (size_t i = 0; i < kNumKernels; ++i) {
      api_.CheckDriver(
          api_.cuModuleGetFunction(&functions_[i], module_, kNames[i]),
          "cuModuleGetFunction");
    }
  } catch (...) {
    api_.cuModuleUnload(module_);
    throw;
  }
}

KernelModule::~KernelModule() { api_.cuModuleUnload(module_); }

void KernelModule::Load(const std::string& nvrtc_library) {
  const std::string built(BuiltKernels());
  if (!built.empty() &&
      api_.cuModuleLoadData(&module_, built.c_str()) == kSuccess) {
    return;
  }
  // An older driver does not take what a newer nvcc made.
  const std::string ptx = CompileKernels(Nvrtc::Load(nvrtc_library));
  api_.CheckDriver(api_.cuModuleLoadData(&module_, ptx.c_str()),
                   "cuModuleLoadData");
}

void KernelModule::LaunchWith(Kernel kernel, const Grid& grid,
                              const Stream& stream, void** arguments) const {
  const int64_t blocks = (grid.threads + kBlockThreads - 1) / kBlockThreads;
  api_.CheckDriver(
      api_.cuLaunchKernel(
          functions_[static_cast<size_t>(kernel)],
          static_cast<unsigned>(std::clamp<int64_t>(blocks, 1, kMaxBlocks)),
          static_cast<unsigned>(grid.batch), 1, kBlockThreads, 1, 1, 0,
          stream.handle(), arguments, nullptr),
      "cuLaunchKernel");
}

}  // namespace muonstore::cuda
