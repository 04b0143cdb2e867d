#include "formats/native/draft.h"

#include <algorithm>
#include <cstring>

#include "formats/native/block_codec.h"
#include "formats/native/carried_writer.h"
#include "formats/native/file_names.h"
#include "formats/native/hash.h"
#include "formats/native/hdf5_view.h"
#include "formats/torchfile/carried_state.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

// Numbers of a rank file in its report, beside offsets and blocks.
constexpr size_t kFileNumbers = 4;
constexpr size_t kBlockNumbers = 3;

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
                     const SinkOptions& options, const std::string& save_id) {
  CheckOptions(options);
  PlannedManifest plan = PlanManifest(source, target, options.slot_order);
  plan.manifest.save_id = save_id;
  plan.manifest.compressed = options.zstd_level > 0;
  plan.manifest.block_bytes = options.block_bytes;
  return plan;
}

std::vector<std::string> SlotNames(const Manifest& manifest) {
  std::vector<std::string> names(manifest.slots.size());
  for (const ManifestTensor& entry : manifest.tensors) {
    if (entry.slot < 0) continue;
    const auto slot = static_cast<size_t>(entry.slot);
    if (manifest.slots[slot].flat_group < 0) {
      names[slot] = entry.tensor.key.parameter;
    }
  }
  return names;
}

FileDigest WriteText(const TagWriter& tag, const std::string& name,
                     const std::string& text) {
  return tag.WriteFile(name, [&](const TagWriter::Append& append) {
    append(std::as_bytes(std::span(text)));
  });
}

}  // namespace

Draft::Draft(const Checkpoint& source, const TargetLayout& target,
             const SinkOptions& options, const std::string& save_id)
    : plan_(Plan(source, target, options, save_id)),
      layout_(plan_.manifest),
      pieces_(plan_.manifest, layout_),
      blocks_(layout_, plan_.manifest.block_bytes),
      zstd_level_(options.zstd_level),
      slot_names_(SlotNames(plan_.manifest)) {
  const std::string why =
      WhyNoView(plan_.manifest, layout_, options.max_mappings);
  if (!why.empty()) {
    plan_.manifest.view_omitted = why;
    notes_.push_back(StrCat(kViewName, " is left out: ", why));
  }
}

uint64_t Draft::plan_digest() const {
  const std::string text = WriteManifest(plan_.manifest);
  return Hash64(std::as_bytes(std::span(text)));
}

std::string Draft::SegmentName(size_t segment) const {
  const Segment& info = layout_.segments()[segment];
  const auto slot = static_cast<size_t>(layout_.slots()[segment]);
  return StrCat("rank ", info.rank, " ", info.kind, " of ",
                info.flat_group < 0 ? Printable(slot_names_[slot])
                                    : StrCat("flat group ", info.flat_group));
}

std::span<const Segment> Draft::BareSegmentsOf(int32_t rank) const {
  const size_t first = layout_.first_segment(rank);
  return layout_.segments().subspan(first,
                                    layout_.first_segment(rank + 1) - first);
}

std::vector<SinkSegment> Draft::SegmentsOf(int32_t rank) const {
  const auto bare = BareSegmentsOf(rank);
  const size_t first = layout_.first_segment(rank);
  std::vector<SinkSegment> segments(bare.size());
  for (size_t i = 0; i < segments.size(); ++i) {
    segments[i].name = SegmentName(first + i);
    segments[i].dtype = bare[i].dtype;
    segments[i].num_elements = bare[i].num_elements;
    segments[i].pieces = pieces_.Pieces(first + i);
    for (SinkPiece& piece : segments[i].pieces) {
      piece.tensor = plan_.source_tensors[piece.tensor];
    }
  }
  return segments;
}

std::unique_ptr<RankWriter> Draft::MakeWriter(
    int32_t rank, std::unique_ptr<WritableFile> file,
    const SinkFileResources& resources) {
  return std::make_unique<RankWriter>(
      RankWriterContext{.manifest = plan_.manifest,
                        .layout = layout_,
                        .zstd_level = zstd_level_,
                        .slot_names = slot_names_,
                        .blocks = blocks_,
                        .files = plan_.manifest.files,
                        .resources = resources},
      rank, std::move(file), SegmentsOf(rank));
}

size_t Draft::ReportBytes(int32_t rank) const {
  size_t numbers = kFileNumbers;
  for (size_t i = layout_.first_segment(rank);
       i < layout_.first_segment(rank + 1); ++i) {
    numbers += 1 + kBlockNumbers * blocks_.blocks(i).size();
  }
  return numbers * sizeof(uint64_t);
}

std::vector<std::byte> Draft::Report(int32_t rank) const {
  const RankFile& file = plan_.manifest.files[static_cast<size_t>(rank)];
  std::vector<uint64_t> numbers = {file.size_bytes, file.head_digest,
                                   file.tail_offset, file.tail_digest};
  numbers.insert(numbers.end(), file.segment_offsets.begin(),
                 file.segment_offsets.end());
  for (size_t i = layout_.first_segment(rank);
       i < layout_.first_segment(rank + 1); ++i) {
    for (const Block& block : blocks_.blocks(i)) {
      numbers.insert(numbers.end(),
                     {block.offset_bytes, block.stored_bytes, block.digest});
    }
  }
  std::vector<std::byte> report(numbers.size() * sizeof(uint64_t));
  std::memcpy(report.data(), numbers.data(), report.size());
  return report;
}

void Draft::TakeReports(const TagWriter& tag,
                        std::span<const std::vector<std::byte>> reports) {
  for (size_t i = 0; i < reports.size(); ++i) {
    const auto rank = static_cast<int32_t>(i);
    TakeReport(rank, reports[i]);
    const std::string path =
        StrCat(tag.directory(), "/", RankFileName(rank, tag.save_id()));
    const auto status = tag.fs().Stat(path);
    const uint64_t size = plan_.manifest.files[i].size_bytes;
    if (status && status->size_bytes == size) continue;
    throw Error(ErrorCode::kUnavailable,
                StrCat("rank 0 does not see the file that rank ", rank,
                       " wrote; the root must be one folder for all ranks"),
                {.file = path,
                 .expected = StrCat(size, " bytes"),
                 .found = status ? StrCat(status->size_bytes) : "none"});
  }
}

void Draft::TakeReport(int32_t rank, std::span<const std::byte> report) {
  if (report.size() != ReportBytes(rank)) {
    throw Error(ErrorCode::kDataLoss,
                StrCat("the report of rank ", rank, " has another size"),
                {.expected = StrCat(ReportBytes(rank), " bytes"),
                 .found = StrCat(report.size())});
  }
  std::vector<uint64_t> numbers(report.size() / sizeof(uint64_t));
  std::memcpy(numbers.data(), report.data(), report.size());
  auto next = numbers.cbegin();
  RankFile& file = plan_.manifest.files[static_cast<size_t>(rank)];
  file.size_bytes = *next++;
  file.head_digest = *next++;
  file.tail_offset = *next++;
  file.tail_digest = *next++;
  for (uint64_t& offset : file.segment_offsets) offset = *next++;
  for (size_t i = layout_.first_segment(rank);
       i < layout_.first_segment(rank + 1); ++i) {
    const size_t count = blocks_.blocks(i).size();
    for (size_t b = 0; b < count; ++b, next += kBlockNumbers) {
      blocks_.Set(i, b,
                  {.offset_bytes = next[0],
                   .stored_bytes = next[1],
                   .digest = next[2]});
    }
  }
}

FileDigest Draft::WriteView(const TagWriter& tag) const {
  const Hdf5Image image = MakeView(plan_.manifest, layout_);
  return tag.WriteFile(
      StagedViewName(tag.save_id()), [&](const TagWriter::Append& append) {
        image.ForEach(0, image.size_bytes(),
                      [&](uint64_t /*offset*/,
                          std::span<const std::byte> bytes) { append(bytes); });
      });
}

void Draft::WriteRest(const TagWriter& tag,
                      const torchfile::CarriedState* carried) {
  Manifest& manifest = plan_.manifest;
  for (const RankFile& file : manifest.files) {
    if (file.size_bytes == 0) {
      throw Error(ErrorCode::kInternal, "committed before every file",
                  {.file = tag.directory()});
    }
  }
  manifest.checksums =
      WriteText(tag, ChecksumsName(tag.save_id()), blocks_.Encode());
  for (int32_t rank = 0; carried && rank < carried->num_ranks(); ++rank) {
    manifest.carried.push_back(WriteCarried(carried->rank(rank), rank, tag));
  }
  if (manifest.view_omitted.empty()) {
    manifest.view = WriteView(tag);
  }
  WriteText(tag, StagedManifestName(tag.save_id()), WriteManifest(manifest));
}

}  // namespace muonstore::native
