// Fills CheckpointInfo from the parsed files.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_DESCRIBE_H_
#define MUONSTORE_FORMATS_DEEPSPEED_DESCRIBE_H_

#include "formats/deepspeed/parts.h"
#include "muonstore/checkpoint.h"

namespace muonstore::deepspeed {

// Needs model, rank 0, layout and table.
CheckpointInfo DescribeCheckpoint(const Parts& parts);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_DESCRIBE_H_
