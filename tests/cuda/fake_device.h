// Options for the plug-in over the fake's libraries.

#ifndef MUONSTORE_TESTS_CUDA_FAKE_DEVICE_H_
#define MUONSTORE_TESTS_CUDA_FAKE_DEVICE_H_

#include "muonstore/cuda.h"

namespace muonstore::testutil {

inline CudaOptions FakeCudaOptions(CudaMode mode = CudaMode::kStream) {
  return {.mode = mode,
          .libraries = {.plugin = CUDA_PLUGIN_PATH,
                        .driver = FAKE_CUDA_PATH,
                        .runtime = FAKE_CUDA_PATH,
                        .blas = FAKE_CUDA_PATH,
                        .nvrtc = FAKE_CUDA_PATH}};
}

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_CUDA_FAKE_DEVICE_H_
