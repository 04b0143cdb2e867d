#include "converters/implied_weights.h"

#include <algorithm>
#include <vector>

#include "converters/element_converter.h"
#include "converters/held_parts.h"

namespace muonstore {
namespace {

std::span<const std::byte> Elements(std::span<const std::byte> bytes,
                                    int64_t first, int64_t count, DType dtype) {
  const int64_t item = SizeBytes(dtype);
  return bytes.subspan(static_cast<size_t>(first * item),
                       static_cast<size_t>(count * item));
}

}  // namespace

ImpliedWeights::ImpliedWeights(const Checkpoint& source,
                               const ConversionPlan& plan)
    : source_(source) {
  for (const ImpliedWeight& implied : plan.implied_weights) {
    weight_of_.emplace(implied.master, implied.weight);
  }
}

bool ImpliedWeights::Concern(const SinkSegment& segment) const {
  return !weight_of_.empty() &&
         std::any_of(segment.pieces.begin(), segment.pieces.end(),
                     [&](const SinkPiece& piece) {
                       return weight_of_.contains(piece.tensor);
                     });
}

void ImpliedWeights::Compare(const SinkSegment& segment, int64_t first_element,
                             std::span<const std::byte> block,
                             ValueLosses& losses) const {
  if (weight_of_.empty()) return;
  const int64_t end = first_element + static_cast<int64_t>(block.size()) /
                                          SizeBytes(segment.dtype);
  auto piece = std::partition_point(
      segment.pieces.begin(), segment.pieces.end(), [&](const SinkPiece& p) {
        return p.segment_offset + p.length <= first_element;
      });
  for (; piece != segment.pieces.end() && piece->segment_offset < end;
       ++piece) {
    const auto weight = weight_of_.find(piece->tensor);
    if (weight == weight_of_.end()) continue;
    const int64_t shift = piece->tensor_offset - piece->segment_offset;
    const ElementRange range{
        std::max(piece->segment_offset, first_element) + shift,
        std::min(piece->segment_offset + piece->length, end) + shift};
    ComparePart({piece->tensor, weight->second, range, segment.dtype},
                Elements(block, range.begin - shift - first_element,
                         range.size(), segment.dtype),
                losses);
  }
}

void ImpliedWeights::ComparePart(const Part& part,
                                 std::span<const std::byte> bytes,
                                 ValueLosses& losses) const {
  const CheckpointTensor& weight = source_.tensors()[part.weight];
  ElementConverter converter;
  ValueDifference difference;
  std::vector<std::byte> stored;
  std::vector<std::byte> rounded;
  for (const ElementRange& in_master :
       HeldParts(part.range, source_.tensors()[part.master].missing)) {
    for (const ElementRange& held : HeldParts(in_master, weight.missing)) {
      stored.resize(static_cast<size_t>(held.size() * SizeBytes(weight.dtype)));
      rounded.resize(stored.size());
      ReadTensor(source_, part.weight, held, stored);
      converter.Convert(part.dtype,
                        Elements(bytes, held.begin - part.range.begin,
                                 held.size(), part.dtype),
                        weight.dtype, 1, rounded);
      difference.Compare(weight.dtype, stored, rounded, held.begin);
    }
  }
  losses.AddWeight(part.weight, difference);
}

}  // namespace muonstore
