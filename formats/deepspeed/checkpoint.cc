#include "formats/deepspeed/checkpoint.h"

#include <utility>

#include "formats/deepspeed/describe.h"
#include "src/base/str.h"

namespace muonstore::deepspeed {

std::unique_ptr<DeepSpeedCheckpoint> DeepSpeedCheckpoint::Open(
    std::shared_ptr<FileSystem> fs, const std::string& path,
    const ReadOptions& options) {
  Parts parts = LoadParts(std::move(fs), path, options.rank_zero_only);
  if (!parts.problems.empty()) {
    throw parts.problems.front();
  }
  std::unique_ptr<DeepSpeedCheckpoint> checkpoint;
  try {
    checkpoint = std::make_unique<DeepSpeedCheckpoint>(std::move(parts));
  } catch (const Error& error) {
    throw error.WithFile(path);
  }
  if (!options.allow_loss) {
    const std::vector<Error> losses = checkpoint->Losses();
    if (!losses.empty()) {
      throw losses.front();
    }
  }
  return checkpoint;
}

DeepSpeedCheckpoint::DeepSpeedCheckpoint(Parts parts)
    : parts_(std::move(parts)), info_(DescribeCheckpoint(parts_)) {
  if (!parts_.rank_zero_only) {
    segments_.emplace(parts_);
  }
  table_ = BuildTensorTable(parts_, segments_ ? &*segments_ : nullptr);
  info_.frozen = table_.frozen;
}

std::vector<Error> DeepSpeedCheckpoint::Losses() const {
  std::vector<Error> losses;
  for (const CheckpointTensor& tensor : table_.tensors) {
    if (tensor.missing.empty()) {
      continue;
    }
    const ElementRange& range = tensor.missing.front();
    const std::string which =
        range.size() == 1
            ? StrCat("element ", range.begin)
            : StrCat("elements ", range.begin, " to ", range.end - 1);
    losses.emplace_back(
        ErrorCode::kDataLoss,
        StrCat("the checkpoint does not hold ", which,
               ": DeepSpeed's elastic save cuts the momentum by the padding; "
               "--allow-loss takes the rest"),
        ErrorPlace{
            .file = info_.path,
            .tensor = tensor.key.ToString(),
            .expected = StrCat(tensor.shape.num_elements(), " elements"),
            .found = StrCat(tensor.shape.num_elements() - range.size())});
  }
  return losses;
}

const SegmentTable& DeepSpeedCheckpoint::segment_table() const {
  if (!segments_) {
    throw Error(ErrorCode::kInvalidArgument,
                "the checkpoint was opened for the headers of rank 0 alone",
                {.file = info_.path});
  }
  return *segments_;
}

std::vector<Fragment> DeepSpeedCheckpoint::fragments(size_t tensor) const {
  return FragmentsOf(parts_, segment_table(), table_.sources[tensor],
                     table_.tensors[tensor].shape.num_elements());
}

std::span<const Segment> DeepSpeedCheckpoint::segments() const {
  return segment_table().segments();
}

void DeepSpeedCheckpoint::ReadSegment(int32_t segment, int64_t first_element,
                                      std::span<std::byte> out) const {
  segment_table().Read(segment, first_element, out);
}

}  // namespace muonstore::deepspeed
