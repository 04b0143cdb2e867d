// Probing for a GPU, and making a device of it.
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "muonstore/cuda.h"
#include "muonstore/error.h"
#include "src/base/log.h"
#include "src/base/str.h"
#include "src/cuda/host_mode.h"
#include "src/cuda/load.h"
#include "src/cuda/measure.h"
#include "src/store/agreement.h"

namespace muonstore {
namespace {

using cuda::Plugin;

CudaAnswer NoPlugin(const std::string& reason) {
  return {.state = CudaState::kNoPlugin,
          .message = StrCat("no CUDA device: libmuonstore_cuda.so was not "
                            "built, or is not where the loader looks (",
                            reason, ")")};
}

std::unique_ptr<CudaDevice> MakeGpu(const CudaOptions& options) {
  // Throws for options that no device can follow.
  static_cast<void>(ChooseForm(options.newton_schulz, 1, 1));
  std::string reason;
  const Plugin* plugin = cuda::LoadPlugin(options.libraries.plugin, reason);
  if (plugin == nullptr) {
    throw Error(ErrorCode::kUnavailable, NoPlugin(reason).message);
  }
  return plugin->make(options);
}

int64_t Microseconds(double seconds) {
  return std::llround(std::ceil(seconds * 1e6));
}

// Sums over ranks, so that all come to the same choice.
void SumCosts(Communicator& communicator, CudaCosts& costs) {
  std::array<int64_t, 2> sums = {Microseconds(costs.stream_s),
                                 Microseconds(costs.host_s)};
  communicator.AllReduce(sums, ReduceOp::kSum);
  costs.stream_s = static_cast<double>(sums[0]) * 1e-6;
  costs.host_s = static_cast<double>(sums[1]) * 1e-6;
}

std::unique_ptr<CudaDevice> MakeByCost(const CudaOptions& options) {
  std::unique_ptr<CudaDevice> gpu;
  CudaCosts costs;
  const auto measure = [&] {
    gpu = MakeGpu(options);
    costs = cuda::MeasureCosts(*gpu, options);
  };
  if (options.communicator == nullptr) {
    measure();
  } else {
    RequireAgreement(*options.communicator, "choosing the CUDA mode",
                     Caught(measure), 0);
    SumCosts(*options.communicator, costs);
  }
  const bool host = CheaperMode(costs) == CudaMode::kHost;
  Log(LogLevel::kInfo,
      StrCat(gpu->name(), ": a matrix of side ", costs.side, " takes ",
             costs.stream_s, " s there and ", costs.host_s, " s here, so mode ",
             host ? "host" : "stream", " is used"));
  gpu->set_costs(costs);
  return host ? cuda::MakeHostModeDevice(std::move(gpu), options)
              : std::move(gpu);
}

}  // namespace

CudaAnswer ProbeCuda(const CudaOptions& options) {
  std::string reason;
  const Plugin* plugin = cuda::LoadPlugin(options.libraries.plugin, reason);
  return plugin == nullptr ? NoPlugin(reason) : plugin->probe(options);
}

CudaMode CheaperMode(const CudaCosts& costs) {
  return costs.stream_s <= costs.host_s ? CudaMode::kStream : CudaMode::kHost;
}

std::shared_ptr<CudaDevice> MakeCudaDevice(const CudaOptions& options) {
  switch (options.mode) {
    case CudaMode::kStream:
      return MakeGpu(options);
    case CudaMode::kHost:
      return cuda::MakeHostModeDevice(MakeGpu(options), options);
    case CudaMode::kAutomatic:
      break;
  }
  return MakeByCost(options);
}

}  // namespace muonstore
