// What a checkpoint should hold and does not, although its files agree.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_GAPS_H_
#define MUONSTORE_FORMATS_DEEPSPEED_GAPS_H_

#include <string_view>
#include <vector>

#include "formats/deepspeed/parts.h"
#include "muonstore/checkpoint.h"

namespace muonstore::deepspeed {

// True for versions that keep no momentum in this offload mode.
bool NeverStoresMomentum(std::string_view offload, std::string_view version);

// Momentum, moments and steps that no rank stores, counters without a value,
// weights and buffers that the module lacks, and names or a stage that
// contradict the rest. Faults where the state is not whole by that. Needs what
// DescribeCheckpoint needs; `info` as it fills it, but for the findings.
std::vector<Finding> FindGaps(const Parts& parts, const CheckpointInfo& info);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_GAPS_H_
