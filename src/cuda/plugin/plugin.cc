// The symbol of libmuonstore_cuda.so.
#include "src/cuda/plugin.h"

#include "muonstore/error.h"
#include "src/cuda/plugin/gpu_device.h"

namespace muonstore::cuda {
namespace {

CudaAnswer Probe(const CudaOptions& options) {
  Api api;
  return Api::Load(options, api);
}

std::unique_ptr<CudaDevice> Make(const CudaOptions& options) {
  Api api;
  const CudaAnswer answer = Api::Load(options, api);
  if (answer.state != CudaState::kReady) {
    throw Error(ErrorCode::kUnavailable, answer.message);
  }
  return MakeGpuDevice(api, options);
}

constexpr Plugin kPlugin = {
    .version = Plugin::kVersion, .probe = &Probe, .make = &Make};

}  // namespace
}  // namespace muonstore::cuda

extern "C" __attribute__((visibility("default"))) const muonstore::cuda::Plugin*
muonstore_cuda_plugin() {
  return &muonstore::cuda::kPlugin;
}
