#include "formats/native/checkpoint.h"

#include <filesystem>
#include <utility>

#include "formats/native/hash.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

void RequireNoLoss(const NativeCheckpoint& checkpoint) {
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    if (!tensor.missing.empty()) {
      const ElementRange& range = tensor.missing.front();
      throw Error(
          ErrorCode::kDataLoss,
          StrCat("the checkpoint does not hold elements ", range.begin, " to ",
                 range.end - 1,
                 ": its source had lost them; --allow-loss takes the "
                 "rest"),
          {.file = checkpoint.info().path, .tensor = tensor.key.ToString()});
    }
  }
}

}  // namespace

std::unique_ptr<NativeCheckpoint> NativeCheckpoint::Open(
    std::shared_ptr<FileSystem> fs, const std::string& directory,
    const ReadOptions& options) {
  TagFiles tag = OpenTagFiles(std::move(fs), directory);
  if (!tag.problems.empty()) {
    throw tag.problems.front();
  }
  auto checkpoint = std::make_unique<NativeCheckpoint>(std::move(tag));
  if (!options.allow_loss) {
    RequireNoLoss(*checkpoint);
  }
  return checkpoint;
}

NativeCheckpoint::NativeCheckpoint(TagFiles tag)
    : tag_(std::move(tag)), reader_(tag_), info_(tag_.manifest.info) {
  info_.path = tag_.directory;
  info_.tag = std::filesystem::path(tag_.directory).filename().string();
  info_.identity =
      StrCat(tag_.manifest.save_id, ".", ToHex(tag_.manifest.digest));
  info_.total_bytes = tag_.size_bytes;
  info_.num_files = tag_.num_files;
  info_.producer = StrCat(info_.producer, ", from ", tag_.manifest.source);
  if (!tag_.extra_files.empty()) {
    info_.findings.push_back(
        {.severity = Finding::Severity::kNote,
         .code = "extra_files",
         .message = StrCat("files that the manifest does not name: ",
                           JoinNames(tag_.extra_files, 5))});
  }
  for (const ManifestTensor& entry : tag_.manifest.tensors) {
    tensors_.push_back(entry.tensor);
  }
  segments_.assign(tag_.layout->segments().begin(),
                   tag_.layout->segments().end());
  for (Segment& segment : segments_) {
    segment.file = tag_.rank_path(segment.rank);
  }
  std::vector<std::string> carried;
  for (size_t rank = 0; rank < tag_.manifest.carried.size(); ++rank) {
    carried.push_back(tag_.carried_path(static_cast<int32_t>(rank)));
  }
  if (!carried.empty()) {
    carried_.emplace(tag_.fs, std::move(carried));
  }
}

std::vector<Fragment> NativeCheckpoint::fragments(size_t tensor) const {
  return tag_.layout->fragments(tag_.manifest.tensors[tensor]);
}

void NativeCheckpoint::ReadSegment(int32_t segment, int64_t first_element,
                                   std::span<std::byte> out) const {
  reader_.Read(static_cast<size_t>(segment), first_element, out);
}

}  // namespace muonstore::native
