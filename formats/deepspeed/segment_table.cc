#include "formats/deepspeed/segment_table.h"

#include <utility>

#include "formats/deepspeed/swap_files.h"
#include "src/base/str.h"

namespace muonstore::deepspeed {
SegmentTable::SegmentTable(const Parts& parts) : fs_(parts.fs) {
  for (const std::vector<GroupKind>& kinds : parts.table->kinds) {
    first_of_group_.push_back(segments_per_rank_);
    segments_per_rank_ += kinds.size();
  }
  for (const RankStates& rank : parts.ranks) {
    for (size_t g = 0; g < parts.table->kinds.size(); ++g) {
      for (const GroupKind& kind : parts.table->kinds[g]) {
        AddState(parts, rank, g, kind);
      }
    }
  }
}

void SegmentTable::AddState(const Parts& parts, const RankStates& rank,
                            size_t flat_group, const GroupKind& kind) {
  Segment segment{.rank = rank.rank,
                  .kind = kind.kind,
                  .flat_group = static_cast<int32_t>(flat_group),
                  .dtype = kind.dtype,
                  .file = rank.file->path()};
  const FlatBuffer* buffer = rank.flat[flat_group].Find(kind.kind);
  if (buffer == nullptr) {  // A rank of padding only may have no state.
    segments_.push_back(std::move(segment));
    sources_.emplace_back();
    return;
  }
  segment.dtype = buffer->dtype;
  if (!buffer->swap_name.empty()) {
    AddSwapFile(parts, rank, *buffer, std::move(segment));
    return;
  }
  segment.num_elements = buffer->num_elements;
  segments_.push_back(std::move(segment));
  sources_.push_back({rank.file, buffer->tensor});
}

void SegmentTable::AddSwapFile(const Parts& parts, const RankStates& rank,
                               const FlatBuffer& buffer, Segment segment) {
  segment.num_elements = parts.layout->partitioning
                             .groups()[static_cast<size_t>(segment.flat_group)]
                             .partition_elements;
  if (segment.num_elements == 0) {
    segments_.push_back(std::move(segment));
    sources_.emplace_back();
    return;
  }
  segment.file = SwapPath(parts, rank.rank, buffer.swap_name);
  const auto status = fs_->Stat(segment.file);
  const auto want = static_cast<uint64_t>(
      CheckedMultiply(segment.num_elements, SizeBytes(DType::kF32), "bytes"));
  if (!status) {
    throw Error(ErrorCode::kDataLoss,
                StrCat("the swap file is missing: rank ", rank.rank,
                       " kept its ", segment.kind, " on NVMe"),
                {.file = segment.file,
                 .expected = StrCat("at least ", want, " bytes"),
                 .found = "no file"});
  }
  RequireSwapSize(parts, segment.file, status->size_bytes, want);
  segments_.push_back(std::move(segment));
  sources_.emplace_back();
}

int32_t SegmentTable::AddTensor(
    std::shared_ptr<const torchfile::TorchFile> file, uint32_t tensor,
    int32_t rank, std::string_view kind) {
  const torchfile::TensorInfo& info = file->tree().tensors[tensor];
  segments_.push_back({.rank = rank,
                       .kind = StateKind(kind),
                       .dtype = info.dtype,
                       .num_elements = info.shape.num_elements(),
                       .file = file->path()});
  sources_.push_back({std::move(file), tensor});
  return static_cast<int32_t>(segments_.size()) - 1;
}

int32_t SegmentTable::StateSegment(int32_t rank, size_t flat_group,
                                   size_t kind) const {
  return static_cast<int32_t>(static_cast<size_t>(rank) * segments_per_rank_ +
                              first_of_group_[flat_group] + kind);
}

void SegmentTable::Read(int32_t segment, int64_t first_element,
                        std::span<std::byte> out) const {
  const auto index = static_cast<size_t>(segment);
  const Source& source = sources_[index];
  if (source.file != nullptr) {
    source.file->ReadElements(source.file->tree().tensors[source.tensor],
                              first_element, out);
    return;
  }
  const auto offset = static_cast<uint64_t>(
      CheckedMultiply(first_element, SizeBytes(DType::kF32), "bytes"));
  fs_->OpenForRead(segments_[index].file)->ReadAt(offset, out);
}

}  // namespace muonstore::deepspeed
