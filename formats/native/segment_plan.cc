#include "formats/native/segment_plan.h"

#include <algorithm>

#include "src/partition/rank_parts.h"

namespace muonstore::native {

SegmentPlan::SegmentPlan(const Manifest& manifest, const Layout& layout)
    : manifest_(manifest), layout_(layout), tensors_(manifest.slots.size()) {
  for (size_t t = 0; t < manifest.tensors.size(); ++t) {
    const ManifestTensor& entry = manifest.tensors[t];
    if (entry.slot < 0 || entry.tensor.derived) {
      continue;
    }
    const auto slot = static_cast<size_t>(entry.slot);
    const bool is_flat = manifest.slots[slot].flat_group >= 0;
    tensors_[slot].emplace(is_flat ? entry.parameter : -1, t);
  }
}

std::vector<SinkPiece> SegmentPlan::Pieces(size_t segment) const {
  const Segment& info = layout_.segments()[segment];
  const auto& tensors = tensors_[static_cast<size_t>(layout_.slots()[segment])];
  std::vector<SinkPiece> pieces;
  if (info.flat_group < 0) {
    for (const auto& [parameter, tensor] : tensors) {
      AddPresent(tensor, {.length = info.num_elements}, pieces);
    }
    return pieces;
  }
  for (const RankPart& part :
       PartsOnRank(layout_.partitioning(), manifest_.parameters, info.rank,
                   info.flat_group)) {
    const auto found = tensors.find(part.parameter);
    if (found == tensors.end()) {
      continue;
    }
    AddPresent(found->second,
               {.tensor_offset = part.tensor_offset,
                .segment_offset = part.segment_offset,
                .length = part.length},
               pieces);
  }
  return pieces;
}

void SegmentPlan::AddPresent(size_t tensor, const SinkPiece& piece,
                             std::vector<SinkPiece>& pieces) const {
  const int64_t end = piece.tensor_offset + piece.length;
  const int64_t shift = piece.segment_offset - piece.tensor_offset;
  int64_t at = piece.tensor_offset;
  const auto add = [&](int64_t until) {
    if (at < until) {
      pieces.push_back({.tensor = tensor,
                        .tensor_offset = at,
                        .segment_offset = at + shift,
                        .length = until - at});
    }
  };
  for (const ElementRange& hole : manifest_.tensors[tensor].tensor.missing) {
    if (hole.end <= at || hole.begin >= end) {
      continue;
    }
    add(hole.begin);
    at = hole.end;
  }
  add(end);
}

}  // namespace muonstore::native
