#include "formats/safetensors/sink.h"

#include <utility>

#include "src/base/str.h"

namespace muonstore::safetensors {
namespace {

// One segment a dtype: its tensors lie back to back.
std::vector<SinkSegment> SegmentsOf(const Shard& shard) {
  std::vector<SinkSegment> segments;
  for (const ExportedTensor& exported : shard.tensors) {
    const TensorEntry& entry = exported.entry;
    if (segments.empty() || segments.back().dtype != entry.dtype) {
      segments.push_back(
          {.name = StrCat(shard.file_name, " ", DTypeName(entry.dtype)),
           .dtype = entry.dtype});
    }
    SinkSegment& segment = segments.back();
    const int64_t count = entry.shape.num_elements();
    if (count == 0) continue;
    segment.pieces.push_back({.tensor = exported.tensor,
                              .segment_offset = segment.num_elements,
                              .length = count});
    segment.num_elements += count;
  }
  return segments;
}

class ShardFile final : public SinkFile {
 public:
  ShardFile(std::unique_ptr<WritableFile> file, const Shard& shard)
      : file_(std::move(file)), segments_(SegmentsOf(shard)) {
    std::vector<TensorEntry> entries;
    entries.reserve(shard.tensors.size());
    for (const ExportedTensor& tensor : shard.tensors) {
      entries.push_back(tensor.entry);
    }
    const std::string header = WriteHeader(entries);
    Write(std::as_bytes(std::span(header)));
  }

  const std::string& path() const override { return file_->path(); }
  std::span<const SinkSegment> segments() const override { return segments_; }
  void Append(size_t /*segment*/, std::span<const std::byte> bytes) override {
    Write(bytes);
  }
  void Close() override {
    file_->Sync();
    file_->Close();
  }

 private:
  void Write(std::span<const std::byte> bytes) {
    file_->WriteAt(offset_bytes_, bytes);
    offset_bytes_ += bytes.size();
  }

  std::unique_ptr<WritableFile> file_;
  std::vector<SinkSegment> segments_;
  uint64_t offset_bytes_ = 0;
};

}  // namespace

SafetensorsSink::SafetensorsSink(const Checkpoint& source, os::OutputRoot& root,
                                 const std::string& tag, bool overwrite,
                                 const ExportOptions& options)
    : plan_(PlanExport(source, options)),
      root_(root),
      staged_(root, tag, overwrite) {}

std::vector<SinkSegment> SafetensorsSink::PlanFile(size_t file) const {
  return SegmentsOf(plan_.shards[file]);
}

std::unique_ptr<SinkFile> SafetensorsSink::CreateFile(size_t file) {
  const Shard& shard = plan_.shards[file];
  return std::make_unique<ShardFile>(
      root_.fs().CreateFile(StrCat(staged_.path(), "/", shard.file_name)),
      shard);
}

void SafetensorsSink::Finish() {
  if (finished_) return;
  if (plan_.shards.size() > 1) {
    const std::string text = IndexText(plan_);
    const auto file = root_.fs().CreateFile(
        StrCat(staged_.path(), "/model.safetensors.index.json"));
    file->WriteAt(0, std::as_bytes(std::span(text)));
    file->Sync();
    file->Close();
  }
  finished_ = true;
}

void SafetensorsSink::Commit() {
  Finish();
  staged_.Commit();
}

}  // namespace muonstore::safetensors
