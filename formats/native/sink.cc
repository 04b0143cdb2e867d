#include "formats/native/sink.h"

#include <utility>
#include <vector>

#include "formats/native/block_codec.h"
#include "formats/native/block_table.h"
#include "formats/native/carried_writer.h"
#include "formats/native/file_names.h"
#include "formats/native/hdf5_view.h"
#include "formats/native/layout.h"
#include "formats/native/plan_manifest.h"
#include "formats/native/rank_writer.h"
#include "formats/native/segment_plan.h"
#include "formats/native/tag_writer.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

void CheckOptions(const SinkOptions& options) {
  if (options.zstd_level != 0 && (options.zstd_level < kMinZstdLevel ||
                                  options.zstd_level > kMaxZstdLevel)) {
    throw Error(ErrorCode::kInvalidArgument, "there is no such zstd level",
                {.expected = StrCat("0 (off) or ", kMinZstdLevel, " to ",
                                    kMaxZstdLevel),
                 .found = StrCat(options.zstd_level)});
  }
  constexpr uint64_t kMaxBlockBytes = 64 << 20;
  if (options.block_bytes == 0 || options.block_bytes > kMaxBlockBytes ||
      options.block_bytes % kPageBytes != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "the block size is no multiple of 4096 up to 64 MiB",
                {.found = StrCat(options.block_bytes)});
  }
}

PlannedManifest Plan(const Checkpoint& source, const TargetLayout& target,
                     const SinkOptions& options) {
  CheckOptions(options);
  PlannedManifest plan = PlanManifest(source, target);
  plan.manifest.compressed = options.zstd_level > 0;
  plan.manifest.block_bytes = options.block_bytes;
  return plan;
}

class NativeSink final : public CheckpointSink {
 public:
  NativeSink(os::OutputRoot& root, const SinkOptions& options,
             const Checkpoint& source, const TargetLayout& target)
      : options_(options),
        source_(source),
        plan_(Plan(source, target, options)),
        layout_(plan_.manifest),
        pieces_(plan_.manifest, layout_),
        blocks_(layout_, plan_.manifest.block_bytes),
        tag_(root, options.tag, options.overwrite) {
    plan_.manifest.save_id = tag_.save_id();
    slot_names_.resize(plan_.manifest.slots.size());
    for (const ManifestTensor& entry : plan_.manifest.tensors) {
      if (entry.slot >= 0 && SlotOf(entry).flat_group < 0) {
        slot_names_[static_cast<size_t>(entry.slot)] =
            entry.tensor.key.parameter;
      }
    }
    const std::string why =
        WhyNoView(plan_.manifest, layout_, options.max_mappings);
    if (!why.empty()) {
      plan_.manifest.view_omitted = why;
      notes_.push_back(StrCat(kViewName, " is left out: ", why));
    }
  }

  std::string path() const override { return tag_.directory(); }
  size_t num_files() const override { return plan_.manifest.files.size(); }
  std::span<const SinkLoss> losses() const override { return {}; }
  std::span<const std::string> notes() const override { return notes_; }

  std::vector<SinkSegment> PlanFile(size_t file) const override {
    return SegmentsOf(static_cast<int32_t>(file));
  }

  std::unique_ptr<SinkFile> CreateFile(size_t file) override {
    const auto rank = static_cast<int32_t>(file);
    return std::make_unique<RankWriter>(
        RankWriterContext{.manifest = plan_.manifest,
                          .layout = layout_,
                          .zstd_level = options_.zstd_level,
                          .slot_names = slot_names_,
                          .blocks = blocks_,
                          .files = plan_.manifest.files},
        rank, tag_.Create(RankFileName(rank, tag_.save_id())),
        SegmentsOf(rank));
  }

  void Finish() override {
    if (finished_) return;
    Manifest& manifest = plan_.manifest;
    for (const RankFile& file : manifest.files) {
      if (file.size_bytes == 0) {
        throw Error(ErrorCode::kInternal, "committed before every file",
                    {.file = tag_.directory()});
      }
    }
    manifest.checksums =
        WriteText(ChecksumsName(tag_.save_id()), blocks_.Encode());
    if (const auto* carried = source_.carried_state()) {
      for (int32_t rank = 0; rank < carried->num_ranks(); ++rank) {
        manifest.carried.push_back(
            WriteCarried(carried->rank(rank), rank, tag_));
      }
    }
    if (manifest.view_omitted.empty()) {
      manifest.view = WriteView();
    }
    WriteText(StagedManifestName(tag_.save_id()), WriteManifest(manifest));
    finished_ = true;
  }

  std::shared_ptr<FileSystem> Preview() const override {
    return tag_.Preview();
  }

  void Commit() override {
    Finish();
    tag_.Commit();
  }

 private:
  const Slot& SlotOf(const ManifestTensor& entry) const {
    return plan_.manifest.slots[static_cast<size_t>(entry.slot)];
  }

  std::string SegmentName(size_t segment) const {
    const Segment& info = layout_.segments()[segment];
    const auto slot = static_cast<size_t>(layout_.slots()[segment]);
    return StrCat("rank ", info.rank, " ", info.kind, " of ",
                  info.flat_group < 0 ? Printable(slot_names_[slot])
                                      : StrCat("flat group ", info.flat_group));
  }

  std::vector<SinkSegment> SegmentsOf(int32_t rank) const {
    const size_t first = layout_.first_segment(rank);
    std::vector<SinkSegment> segments(layout_.first_segment(rank + 1) - first);
    for (size_t i = 0; i < segments.size(); ++i) {
      const Segment& info = layout_.segments()[first + i];
      segments[i].name = SegmentName(first + i);
      segments[i].dtype = info.dtype;
      segments[i].num_elements = info.num_elements;
      segments[i].pieces = pieces_.Pieces(first + i);
      for (SinkPiece& piece : segments[i].pieces) {
        piece.tensor = plan_.source_tensors[piece.tensor];
      }
    }
    return segments;
  }

  FileDigest WriteText(const std::string& name, const std::string& text) const {
    return tag_.WriteFile(name, [&](const TagWriter::Append& append) {
      append(std::as_bytes(std::span(text)));
    });
  }

  FileDigest WriteView() const {
    const Hdf5Image image = MakeView(plan_.manifest, layout_);
    return tag_.WriteFile(
        StagedViewName(tag_.save_id()), [&](const TagWriter::Append& append) {
          image.ForEach(
              0, image.size_bytes(),
              [&](uint64_t /*offset*/, std::span<const std::byte> bytes) {
                append(bytes);
              });
        });
  }

  SinkOptions options_;
  const Checkpoint& source_;
  PlannedManifest plan_;
  Layout layout_;
  SegmentPlan pieces_;
  BlockTable blocks_;
  TagWriter tag_;
  std::vector<std::string> slot_names_;
  std::vector<std::string> notes_;
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<CheckpointSink> MakeNativeSink(os::OutputRoot& root,
                                               const SinkOptions& options,
                                               const Checkpoint& source,
                                               const TargetLayout& layout) {
  return std::make_unique<NativeSink>(root, options, source, layout);
}

}  // namespace muonstore::native
