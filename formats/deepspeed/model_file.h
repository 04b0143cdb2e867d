// The values of a `*_model_states.pt` file, as DeepSpeed 0.19.8 writes them.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_MODEL_FILE_H_
#define MUONSTORE_FORMATS_DEEPSPEED_MODEL_FILE_H_

#include "formats/deepspeed/file_draft.h"
#include "formats/deepspeed/target.h"
#include "formats/deepspeed/target_segments.h"

namespace muonstore::deepspeed {

// Sets the root of `file`, whose carried values are the source's model_states.
void BuildModelFile(const Target& target, const TargetSegments& segments,
                    int32_t rank, FileDraft& file);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_MODEL_FILE_H_
