#include "converters/make_sink.h"

#include "converters/fingerprinted_sink.h"
#include "formats/deepspeed/sink.h"
#include "formats/native/sink.h"
#include "formats/safetensors/sink.h"
#include "muonstore/error.h"

namespace muonstore {

std::string_view TargetFormatName(TargetFormat format) {
  switch (format) {
    case TargetFormat::kNative:
      return "native";
    case TargetFormat::kDeepSpeed:
      return "deepspeed";
    case TargetFormat::kSafetensors:
      break;
  }
  return "safetensors";
}

std::unique_ptr<CheckpointSink> MakeSink(const Checkpoint& source,
                                         const TargetLayout& layout,
                                         os::OutputRoot& root,
                                         const SinkRequest& request) {
  switch (request.format) {
    case TargetFormat::kNative:
      return native::MakeNativeSink(
          root,
          native::SinkOptions{.tag = request.tag,
                              .overwrite = request.overwrite,
                              .zstd_level = request.zstd_level},
          source, layout);
    case TargetFormat::kDeepSpeed:
      return std::make_unique<FingerprintedSink>(
          deepspeed::MakeSink(
              source, layout, root,
              {.tag = request.tag, .overwrite = request.overwrite}),
          source, root, request.tag, request.overwrite);
    case TargetFormat::kSafetensors:
      return std::make_unique<safetensors::SafetensorsSink>(
          source, root, request.tag, request.overwrite,
          safetensors::ExportOptions{
              .state = request.state,
              .dtype = request.dtype,
              .max_shard_bytes = request.max_shard_bytes});
  }
  throw Error(ErrorCode::kInternal, "an unknown target format");
}

}  // namespace muonstore
