// The writers of all formats, by name.
//
// Ownership: the sink keeps references to source, layout and root.
// Failures: Error(kInvalidArgument) for a tag that exists without `overwrite`
//   and for options that the format does not have; what the writer throws.

#ifndef MUONSTORE_CONVERTERS_MAKE_SINK_H_
#define MUONSTORE_CONVERTERS_MAKE_SINK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"
#include "muonstore/dtype.h"
#include "src/os/output_root.h"

namespace muonstore {

enum class TargetFormat { kNative, kDeepSpeed, kSafetensors };

// "native", "deepspeed", "safetensors".
std::string_view TargetFormatName(TargetFormat format);

struct SinkRequest {
  TargetFormat format = TargetFormat::kNative;
  std::string tag;
  bool overwrite = false;
  // Native: 0 is not compressed.
  int32_t zstd_level = 0;
  // safetensors: see formats/safetensors/export_plan.h.
  StateKind state = StateKind(kWeight);
  std::optional<DType> dtype = std::nullopt;
  uint64_t max_shard_bytes = 5'000'000'000;
};

// `layout` is not looked at for safetensors.
std::unique_ptr<CheckpointSink> MakeSink(const Checkpoint& source,
                                         const TargetLayout& layout,
                                         os::OutputRoot& root,
                                         const SinkRequest& request);

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_MAKE_SINK_H_
