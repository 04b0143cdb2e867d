// What of the matrices fits a device with memory of its own.
//
// Threads: pure; ranks whose devices have equal limits get equal answers.
// Failures: Error(kResourceExhausted) that names a parameter, for a matrix that
//   does not fit beside the work on another one.

#ifndef MUONSTORE_SRC_EXECUTOR_DEVICE_PLAN_H_
#define MUONSTORE_SRC_EXECUTOR_DEVICE_PLAN_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "muonstore/device.h"
#include "muonstore/parameter.h"
#include "src/executor/matrix_task.h"

namespace muonstore {

// Batches that the pipeline has on a device at the same time.
int32_t DeviceBuffersNeeded(bool overlap);

// Bytes of a batch, so that as many as are needed fit the device's limit beside
// the work on any matrix. No limit: the largest number.
uint64_t MaxDeviceBatchBytes(const Device& device,
                             std::span<const MatrixTask> tasks,
                             std::span<const ParameterSpec> parameters,
                             bool overlap);

// The name without which one it is: "cuda".
std::string_view DeviceKind(const Device& device);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_DEVICE_PLAN_H_
