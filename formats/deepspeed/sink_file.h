// One file of a target, being written.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_SINK_FILE_H_
#define MUONSTORE_FORMATS_DEEPSPEED_SINK_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "formats/deepspeed/file_draft.h"
#include "formats/deepspeed/target_segments.h"
#include "formats/torchfile/torch_file_writer.h"
#include "muonstore/checkpoint_sink.h"
#include "muonstore/file_system.h"

namespace muonstore::deepspeed {

class TorchSinkFile final : public SinkFile {
 public:
  // `draft` has been built from `segments`. Error(kInternal) where its values
  // do not reach the segments in their order.
  TorchSinkFile(std::unique_ptr<WritableFile> file, const FileDraft& draft,
                std::vector<KeyedSegment> segments,
                const std::string& archive_root);

  const std::string& path() const override { return file_->path(); }
  std::span<const SinkSegment> segments() const override { return segments_; }
  void Append(size_t segment, std::span<const std::byte> bytes) override;
  void Close() override;

 private:
  std::unique_ptr<WritableFile> file_;
  std::vector<SinkSegment> segments_;
  std::vector<uint32_t> storages_;  // By segment.
  torchfile::TorchFileWriter writer_;
};

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_SINK_FILE_H_
