#include "src/executor/device_plan.h"

#include <algorithm>
#include <limits>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {

int32_t DeviceBuffersNeeded(bool overlap) { return overlap ? 2 : 1; }

uint64_t MaxDeviceBatchBytes(const Device& device,
                             std::span<const MatrixTask> tasks,
                             std::span<const ParameterSpec> parameters,
                             bool overlap) {
  const uint64_t limit = device.max_memory_bytes();
  if (limit == 0 || tasks.empty()) return std::numeric_limits<uint64_t>::max();
  uint64_t work = 0;
  const MatrixTask* largest = &tasks.front();
  for (const MatrixTask& task : tasks) {
    work = std::max(work, device.WorkspaceBytes(task.rows, task.cols));
    if (task.num_elements() > largest->num_elements()) largest = &task;
  }
  const auto buffers = static_cast<uint64_t>(DeviceBuffersNeeded(overlap));
  const uint64_t matrix_bytes =
      static_cast<uint64_t>(largest->num_elements()) * sizeof(float);
  if (work >= limit || (limit - work) / buffers < matrix_bytes) {
    throw Error(
        ErrorCode::kResourceExhausted,
        StrCat("a matrix of ", largest->rows, " x ", largest->cols,
               " does not fit the device's memory limit; raise "
               "CudaOptions::max_device_bytes"),
        {.tensor = parameters[static_cast<size_t>(largest->parameter)].name,
         .expected = StrCat("at most ", limit, " bytes"),
         .found = StrCat(buffers, " x ", matrix_bytes, " and ", work,
                         " of workspace")});
  }
  return (limit - work) / buffers;
}

std::string_view DeviceKind(const Device& device) {
  const std::string_view name = device.name();
  return name.substr(0, name.find(':'));
}

}  // namespace muonstore
