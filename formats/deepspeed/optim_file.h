// The values of a `*_optim_states.pt` file, as DeepSpeed 0.19.8 writes them.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_OPTIM_FILE_H_
#define MUONSTORE_FORMATS_DEEPSPEED_OPTIM_FILE_H_

#include "formats/deepspeed/file_draft.h"
#include "formats/deepspeed/target.h"
#include "formats/deepspeed/target_segments.h"

namespace muonstore::deepspeed {

// Sets the root of `file`, whose carried values are the source's optim_states.
void BuildOptimFile(const Target& target, const TargetSegments& segments,
                    int32_t rank, FileDraft& file);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_OPTIM_FILE_H_
