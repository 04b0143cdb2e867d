// The run's config (`ds_config`) as the files of the target carry it.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_CONFIG_PATCH_H_
#define MUONSTORE_FORMATS_DEEPSPEED_CONFIG_PATCH_H_

#include "formats/deepspeed/file_draft.h"
#include "formats/deepspeed/target.h"

namespace muonstore::deepspeed {

// The carried config with the target's stage, offload and layout options; all
// else as it is. DeepSpeed takes its own config from the run, not from the
// file.
torchfile::NodeId PatchedConfig(const Target& target, FileDraft& file);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_CONFIG_PATCH_H_
