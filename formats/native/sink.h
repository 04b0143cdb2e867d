// Writes native checkpoints.
//
// What: the CheckpointSink of this format (see muonstore/checkpoint_sink.h):
//   one SinkFile a rank; checksums, carried values, the view and the manifest
//   are written by Finish().
// Ownership: keeps references to root, source and layout.
// Threads, failures: as CheckpointSink; kInvalidArgument where the tag exists
//   without `overwrite`, or for options out of range.
#ifndef MUONSTORE_FORMATS_NATIVE_SINK_H_
#define MUONSTORE_FORMATS_NATIVE_SINK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "formats/native/manifest.h"
#include "formats/native/plan_manifest.h"
#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"
#include "src/os/output_root.h"

namespace muonstore::native {

struct SinkOptions {
  std::string tag;
  // Replace a tag of this name, whatever format it has.
  bool overwrite = false;
  // 0: not compressed; 1 to 19: byte shuffle and zstd.
  int zstd_level = 0;
  // A checkpoint.h5 with more mappings than this is left out.
  int64_t max_mappings = 200'000;
  // Of checksums and of compression; a multiple of 4096 up to 64 MiB.
  uint64_t block_bytes = kDefaultBlockBytes;
  // See PlanManifest.
  std::vector<FlatSlot> slot_order = {};
};

std::unique_ptr<CheckpointSink> MakeNativeSink(os::OutputRoot& root,
                                               const SinkOptions& options,
                                               const Checkpoint& source,
                                               const TargetLayout& layout);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_SINK_H_
