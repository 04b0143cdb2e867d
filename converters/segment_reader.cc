#include "converters/segment_reader.h"

#include <algorithm>

#include "converters/held_parts.h"
#include "muonstore/copy_plan.h"
#include "muonstore/error.h"

namespace muonstore {
namespace {

size_t ItemBytes(DType dtype) { return static_cast<size_t>(SizeBytes(dtype)); }

std::span<std::byte> Elements(std::span<std::byte> bytes, int64_t first,
                              int64_t count, size_t item) {
  return bytes.subspan(static_cast<size_t>(first) * item,
                       static_cast<size_t>(count) * item);
}

}  // namespace

void SegmentReader::Read(const SinkSegment& segment, int64_t first_element,
                         std::span<std::byte> out) {
  overflows_.clear();
  std::fill(out.begin(), out.end(), std::byte{0});
  const int64_t end_element =
      first_element +
      static_cast<int64_t>(out.size() / ItemBytes(segment.dtype));
  auto piece = std::partition_point(
      segment.pieces.begin(), segment.pieces.end(), [&](const SinkPiece& p) {
        return p.segment_offset + p.length <= first_element;
      });
  for (; piece != segment.pieces.end() && piece->segment_offset < end_element;
       ++piece) {
    const Form form = FormOf(piece->tensor);
    if (!runs_.empty() && form != form_) Flush(segment, out);
    form_ = form;
    AddPiece(*piece, first_element, end_element);
  }
  Flush(segment, out);
}

SegmentReader::Form SegmentReader::FormOf(size_t tensor) const {
  const CheckpointTensor& info = source_.tensors()[tensor];
  return {info.derived ? DType::kF32 : info.dtype, info.dtype};
}

void SegmentReader::AddPiece(const SinkPiece& piece, int64_t block_begin,
                             int64_t block_end) {
  const int64_t begin = std::max(piece.segment_offset, block_begin);
  const int64_t end = std::min(piece.segment_offset + piece.length, block_end);
  const int64_t shift = piece.tensor_offset - piece.segment_offset;
  const ElementRange range{begin + shift, end + shift};
  const auto& missing = source_.tensors()[piece.tensor].missing;
  for (const ElementRange& held : HeldParts(range, missing)) {
    AddRange(piece.tensor, held, held.begin - shift - block_begin);
  }
}

void SegmentReader::AddRange(size_t tensor, ElementRange range,
                             int64_t block_element) {
  if (fragments_of_ != tensor) {
    fragments_ = source_.fragments(tensor);
    fragments_of_ = tensor;
  }
  const Fragment dest{.tensor_offset = range.begin,
                      .length = range.size(),
                      .segment_offset = block_element};
  for (const CopyOp& op :
       PlanCopy(Restrict(fragments_, range), std::span(&dest, 1))) {
    for (int64_t i = 0; i < op.count; ++i) {
      const Run run{.source_segment = op.source_segment,
                    .source_element = op.source_offset + i * op.source_stride,
                    .block_element = op.dest_offset + i * op.dest_stride,
                    .length = op.length,
                    .tensor = tensor};
      Run* last = runs_.empty() ? nullptr : &runs_.back();
      if (last != nullptr && last->source_segment == run.source_segment &&
          last->source_element + last->length == run.source_element &&
          last->block_element + last->length == run.block_element) {
        last->length += run.length;
      } else {
        runs_.push_back(run);
      }
    }
  }
}

void SegmentReader::Flush(const SinkSegment& segment,
                          std::span<std::byte> out) {
  if (runs_.empty()) return;
  const size_t stored = ItemBytes(form_.stored);
  if (form_.stored == segment.dtype && form_.logical == segment.dtype &&
      segment.scale == 1) {
    ReadRuns(stored, out, 0);
    runs_.clear();
    return;
  }
  const int64_t first = runs_.front().block_element;
  const int64_t end = runs_.back().block_element + runs_.back().length;
  stored_.resize(static_cast<size_t>(end - first) * stored);
  ReadRuns(stored, stored_, first);
  const size_t logical = ItemBytes(form_.logical);
  for (const Run& run : runs_) {
    std::span<std::byte> values =
        Elements(stored_, run.block_element - first, run.length, stored);
    if (form_.logical != form_.stored) {
      rounded_.resize(static_cast<size_t>(run.length) * logical);
      converter_.Convert(form_.stored, values, form_.logical, 1, rounded_);
      values = rounded_;
    }
    const int64_t num_overflows = converter_.Convert(
        form_.logical, values, segment.dtype, segment.scale,
        Elements(out, run.block_element, run.length, ItemBytes(segment.dtype)));
    if (num_overflows > 0) overflows_.push_back({run.tensor, num_overflows});
  }
  runs_.clear();
}

void SegmentReader::ReadRuns(size_t item, std::span<std::byte> to,
                             int64_t first) const {
  for (const Run& run : runs_) {
    try {
      source_.ReadSegment(
          run.source_segment, run.source_element,
          Elements(to, run.block_element - first, run.length, item));
    } catch (const Error& error) {
      throw error.WithTensor(source_.tensors()[run.tensor].key.ToString());
    }
  }
}

}  // namespace muonstore
