// What `tensors` says of chosen tensors.
#ifndef MUONSTORE_TOOLS_CKPT_INSPECT_TENSORS_OUTPUT_H_
#define MUONSTORE_TOOLS_CKPT_INSPECT_TENSORS_OUTPUT_H_

#include <cstddef>
#include <vector>

#include "muonstore/checkpoint.h"
#include "tools/common/json.h"

namespace muonstore::tools {

// `tensors` index checkpoint.tensors().
Json TensorsJson(const Checkpoint& checkpoint,
                 const std::vector<size_t>& tensors);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_INSPECT_TENSORS_OUTPUT_H_
