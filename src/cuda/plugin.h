// What the plug-in and its loader share.
//
// What: the one symbol of libmuonstore_cuda.so and the table that it returns.
//   Both come from one build: kVersion changes with anything in this file or in
//   the classes that cross it.
// Ownership: the table is static in the plug-in, which is never unloaded.
// Threads: any. Failures: `make` throws Error.

#ifndef MUONSTORE_SRC_CUDA_PLUGIN_H_
#define MUONSTORE_SRC_CUDA_PLUGIN_H_

#include <memory>

#include "muonstore/cuda.h"

namespace muonstore::cuda {

struct Plugin {
  static constexpr int kVersion = 1;
  static constexpr const char* kSymbol = "muonstore_cuda_plugin";

  int version = 0;
  CudaAnswer (*probe)(const CudaOptions& options) = nullptr;
  // A device in mode stream, whose options are sound. Throws as MakeCudaDevice.
  std::unique_ptr<CudaDevice> (*make)(const CudaOptions& options) = nullptr;
};

using PluginFunction = const Plugin* (*)();

}  // namespace muonstore::cuda

#endif  // MUONSTORE_SRC_CUDA_PLUGIN_H_
