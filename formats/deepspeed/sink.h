// Writes a checkpoint as DeepSpeed's own files.
//
// What: model_states and optim_states of every rank of the target layout, in
// the
//   structure of DeepSpeed 0.19.8, so that DeepSpeed itself resumes from them.
//   Client state, schedulers and hyper-parameters are the source's: rank r of
//   the target takes over what rank r of the source carried, or rank 0 where
//   the source had fewer ranks.
// Ownership: borrows source, layout and root. An uncommitted sink removes what
//   it wrote.
// Threads: as CheckpointSink.
// Failures: Error(kUnsupported), Error(kInvalidArgument) for what cannot be
//   written; what the source and the file system throw.

#ifndef MUONSTORE_FORMATS_DEEPSPEED_SINK_H_
#define MUONSTORE_FORMATS_DEEPSPEED_SINK_H_

#include <memory>
#include <string>

#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"
#include "src/os/output_root.h"

namespace muonstore::deepspeed {

struct SinkOptions {
  std::string tag;
  bool overwrite = false;
};

std::unique_ptr<CheckpointSink> MakeSink(const Checkpoint& source,
                                         const TargetLayout& layout,
                                         os::OutputRoot& root,
                                         const SinkOptions& options);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_SINK_H_
