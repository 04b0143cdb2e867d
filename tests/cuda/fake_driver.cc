// The fake's driver and NVRTC. A grid is a loop over its threads.
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "tests/cuda/fake_machine.h"

namespace {

struct Index {
  unsigned x = 0;
  unsigned y = 0;
};

}  // namespace

// What CUDA gives each thread.
static thread_local Index blockIdx;   // NOLINT
static thread_local Index threadIdx;  // NOLINT
static thread_local Index blockDim;   // NOLINT
static thread_local Index gridDim;    // NOLINT

// __global__ and __device__ are nothing here: see CMakeLists.txt.
#include "src/cuda/plugin/kernels.cu"

namespace {

using muonstore::fake_cuda::Machine;

constexpr int kFailed = 719;
constexpr int kNoBinaryForGpu = 209;
constexpr int kCompilationFailed = 6;
constexpr const char* kPtx = "fake ptx";

Machine& The() { return Machine::Instance(); }

struct Grid {
  Index blocks;
  unsigned threads = 1;
};

template <typename Argument>
void RequireDevice(const Argument& argument) {
  if constexpr (std::is_pointer_v<Argument>) {
    The().RequireDevice(argument, 1, "a kernel");
  }
}

template <typename... Arguments>
void RunGrid(void (*kernel)(Arguments...), const Grid& grid,
             const std::tuple<Arguments...>& arguments) {
  std::apply([](const auto&... each) { (RequireDevice(each), ...); },
             arguments);
  gridDim = grid.blocks;
  blockDim = {grid.threads, 1};
  for (blockIdx.y = 0; blockIdx.y < grid.blocks.y; ++blockIdx.y) {
    for (blockIdx.x = 0; blockIdx.x < grid.blocks.x; ++blockIdx.x) {
      for (threadIdx.x = 0; threadIdx.x < grid.threads; ++threadIdx.x) {
        std::apply(kernel, arguments);
      }
    }
  }
}

// Takes the arguments' values at the launch, as CUDA does.
template <typename... Arguments, size_t... kIndices>
std::function<void()> Bind(void (*kernel)(Arguments...), const Grid& grid,
                           void** pointers,
                           std::index_sequence<kIndices...> /*indices*/) {
  const std::tuple<Arguments...> arguments(
      *static_cast<Arguments*>(pointers[kIndices])...);
  return [=] { RunGrid(kernel, grid, arguments); };
}

using Binder = std::function<std::function<void()>(const Grid&, void**)>;

template <typename... Arguments>
Binder Kernel(void (*kernel)(Arguments...)) {
  return [kernel](const Grid& grid, void** pointers) {
    return Bind(kernel, grid, pointers,
                std::index_sequence_for<Arguments...>());
  };
}

const std::map<std::string, Binder>& Kernels() {
  static const std::map<std::string, Binder> kernels = {
      {"SumSquares", Kernel(&SumSquares)},
      {"SumParts", Kernel(&SumParts)},
      {"Normalize", Kernel(&Normalize)},
      {"Round", Kernel(&Round)},
      {"Widen", Kernel(&Widen)},
      {"AddToDiagonal", Kernel(&AddToDiagonal)}};
  return kernels;
}

}  // namespace

extern "C" {

int cuInit(unsigned /*flags*/) {
  if (The().Fails("cuInit")) return kFailed;
  return The().options().init_status;
}

int cuModuleLoadData(void** module, const void* image) {
  if (The().Fails("cuModuleLoadData")) return kFailed;
  if (std::strcmp(static_cast<const char*>(image), kPtx) != 0 &&
      !The().options().takes_built_kernels) {
    return kNoBinaryForGpu;
  }
  *module = The().AddObject("module");
  return 0;
}

int cuModuleUnload(void* module) {
  if (!The().RemoveObject(module)) The().Violation("a module goes twice");
  return The().Fails("cuModuleUnload") ? kFailed : 0;
}

int cuModuleGetFunction(void** function, void* /*module*/, const char* name) {
  if (The().Fails("cuModuleGetFunction")) return kFailed;
  const auto found = Kernels().find(name);
  if (found == Kernels().end()) return 500;
  *function = const_cast<Binder*>(&found->second);
  return 0;
}

// The interface is the driver's.
// NOLINTNEXTLINE(readability-function-size)
int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y,
                   unsigned /*grid_z*/, unsigned block_x, unsigned /*block_y*/,
                   unsigned /*block_z*/, unsigned /*shared*/, void* stream,
                   void** arguments, void** /*extra*/) {
  if (The().Fails("cuLaunchKernel")) return kFailed;
  if (grid_x == 0 || grid_y == 0 || grid_y > 65535 || block_x > 1024) {
    The().Violation("a grid that no GPU has");
    return 1;
  }
  const Grid grid = {.blocks = {grid_x, grid_y}, .threads = block_x};
  const auto& bind = *static_cast<const Binder*>(function);
  The().Put(stream, {.run = bind(grid, arguments)});
  return 0;
}

int cuGetErrorString(int /*status*/, const char** text) {
  *text = "a fake reason";
  return 0;
}

int nvrtcCreateProgram(void** program, const char* /*source*/,
                       const char* /*name*/, int /*num_headers*/,
                       const char* const* /*headers*/,
                       const char* const* /*names*/) {
  if (The().Fails("nvrtcCreateProgram")) return kFailed;
  *program = The().AddObject("program");
  return 0;
}

int nvrtcCompileProgram(void* /*program*/, int /*num_options*/,
                        const char* const* /*options*/) {
  if (The().Fails("nvrtcCompileProgram")) return kCompilationFailed;
  ++The().counts().compilations;
  return The().options().compiles ? 0 : kCompilationFailed;
}

int nvrtcGetPTXSize(void* /*program*/, size_t* size) {
  if (The().Fails("nvrtcGetPTXSize")) return kFailed;
  *size = std::strlen(kPtx) + 1;
  return 0;
}

int nvrtcGetPTX(void* /*program*/, char* ptx) {
  if (The().Fails("nvrtcGetPTX")) return kFailed;
  std::memcpy(ptx, kPtx, std::strlen(kPtx) + 1);
  return 0;
}

int nvrtcGetProgramLogSize(void* /*program*/, size_t* size) {
  if (The().Fails("nvrtcGetProgramLogSize")) return kFailed;
  *size = std::strlen("a fake log") + 1;
  return 0;
}

int nvrtcGetProgramLog(void* /*program*/, char* log) {
  if (The().Fails("nvrtcGetProgramLog")) return kFailed;
  std::memcpy(log, "a fake log", std::strlen("a fake log") + 1);
  return 0;
}

int nvrtcDestroyProgram(void** program) {
  if (!The().RemoveObject(*program)) The().Violation("a program goes twice");
  return The().Fails("nvrtcDestroyProgram") ? kFailed : 0;
}

const char* nvrtcGetErrorString(int /*status*/) { return "a fake reason"; }

}  // extern "C"
