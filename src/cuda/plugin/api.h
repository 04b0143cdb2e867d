// CUDA's libraries, found and loaded at run time.
//
// What: a member for every function of abi.h, null until loaded, and checked
//   calls. The driver is loaded first: without one nothing else is looked for.
// Ownership: keeps the libraries loaded for good; CUDA runs code at exit.
// Threads: constant after Load.
// Failures: Load answers; Check* throw Error: kResourceExhausted for memory,
//   else kUnavailable, with the function's name and the library's reason.

#ifndef MUONSTORE_SRC_CUDA_PLUGIN_API_H_
#define MUONSTORE_SRC_CUDA_PLUGIN_API_H_

#include <string>

#include "muonstore/cuda.h"
#include "src/cuda/plugin/abi.h"

namespace muonstore::cuda {

#define MUONSTORE_MEMBER(name, ...) \
  using name##_type = __VA_ARGS__;  \
  name##_type* name = nullptr;

struct Nvrtc {
  MUONSTORE_NVRTC(MUONSTORE_MEMBER)

  // Throws Error(kUnavailable) where it is not there: only GPUs whose driver
  // refuses the compiled kernels need it.
  static Nvrtc Load(const std::string& name);
  void Check(int status, const char* function) const;
};

struct Api {
  MUONSTORE_CUDA_DRIVER(MUONSTORE_MEMBER)
  MUONSTORE_CUDART(MUONSTORE_MEMBER)
  MUONSTORE_CUBLAS(MUONSTORE_MEMBER)

  // Fills `api` as far as it goes; ready, or what is missing.
  static CudaAnswer Load(const CudaOptions& options, Api& api);

  void Check(int status, const char* function) const;        // cuda*
  void CheckBlas(int status, const char* function) const;    // cublas*
  void CheckDriver(int status, const char* function) const;  // cu*

 private:
  static CudaAnswer LoadDriver(const std::string& name, Api& table);
  static CudaAnswer LoadRuntime(const CudaLibraries& libraries, Api& table);
};

#undef MUONSTORE_MEMBER

}  // namespace muonstore::cuda

#endif  // MUONSTORE_SRC_CUDA_PLUGIN_API_H_
