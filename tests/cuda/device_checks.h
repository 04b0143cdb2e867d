// What any CUDA device must do: the fake, and a GPU where there is one.

#ifndef MUONSTORE_TESTS_CUDA_DEVICE_CHECKS_H_
#define MUONSTORE_TESTS_CUDA_DEVICE_CHECKS_H_

#include <cstdint>
#include <vector>

#include "muonstore/cuda.h"
#include "muonstore/device.h"

namespace muonstore::testutil {

// Values of a batch without structure; each matrix has another scale.
std::vector<float> BatchValues(const DeviceMatrices& matrices, uint64_t seed);

// Up, orthogonalized, down, with every handle waited for at the end only.
std::vector<float> OrthogonalizeOn(CudaDevice& device,
                                   const DeviceMatrices& matrices,
                                   std::vector<float> values);

// The largest relative error of a batch's matrices against the formula in
// double.
double ErrorAgainstOracle(const NewtonSchulzOptions& options,
                          const DeviceMatrices& matrices,
                          const std::vector<float>& in,
                          const std::vector<float>& out);

// Wide, tall and square ones, of one and of more.
std::vector<DeviceMatrices> ManyShapes();

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_CUDA_DEVICE_CHECKS_H_
