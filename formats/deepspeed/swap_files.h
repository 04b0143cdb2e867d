// State that DeepSpeed kept on NVMe:
// offloaded_tensors/rank<NN>/<name>.tensor.swp in the tag directory, raw FP32
// elements.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_SWAP_FILES_H_
#define MUONSTORE_FORMATS_DEEPSPEED_SWAP_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "formats/deepspeed/parts.h"
#include "muonstore/checkpoint.h"

namespace muonstore::deepspeed {

std::string SwapPath(const Parts& parts, int32_t rank,
                     const std::string& swap_name);

// Error(kDataLoss) for a file that is shorter than a rank's partition, or
// longer than one rounded up to a block.
void RequireSwapSize(const Parts& parts, const std::string& path,
                     uint64_t size_bytes, uint64_t partition_bytes);

// Files and folders that no rank's state names (notes: DeepSpeed may leave
// them). Missing ones and wrong sizes are errors of opening. Needs the layout.
std::vector<Finding> CheckSwapFiles(const Parts& parts);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_SWAP_FILES_H_
