// Finds the plug-in.
//
// Ownership: a plug-in that was loaded stays. Threads: any.
// Failures: null where there is none, with the reason.

#ifndef MUONSTORE_SRC_CUDA_LOAD_H_
#define MUONSTORE_SRC_CUDA_LOAD_H_

#include <string>

#include "src/cuda/plugin.h"

namespace muonstore::cuda {

// `path`: CudaLibraries::plugin. Empty: as the dynamic loader finds
// libmuonstore_cuda.so, then where this build installs it.
const Plugin* LoadPlugin(const std::string& path, std::string& reason);

}  // namespace muonstore::cuda

#endif  // MUONSTORE_SRC_CUDA_LOAD_H_
