#include "src/checkpoint/piece_reader.h"

#include <algorithm>

namespace muonstore {
namespace {

// With the widest intermediate form, 13 MB of scratch space.
constexpr int64_t kBlockElements = 1 << 20;
// Of what is read where it belongs: enough to keep a disk busy.
constexpr int64_t kDirectElements = 1 << 24;

// What of `range` comes first: a run of missing elements, or of others.
struct Part {
  ElementRange range;
  bool is_missing = false;
};
Part FirstPart(std::span<const ElementRange> missing, ElementRange range) {
  Part part{.range = range};
  for (const ElementRange& gap : missing) {
    if (gap.begin <= range.begin && range.begin < gap.end) {
      return {.range = {range.begin, std::min(range.end, gap.end)},
              .is_missing = true};
    }
    if (gap.begin > range.begin) {
      part.range.end = std::min(part.range.end, gap.begin);
    }
  }
  return part;
}

}  // namespace

void PieceReader::Read(const LoadItem& item, DType dtype,
                       const StatePiece<std::byte>& piece) {
  const Fragment& fragment = piece.fragment;
  const auto run_bytes = static_cast<size_t>(fragment.length) *
                         static_cast<size_t>(SizeBytes(dtype));
  for (int64_t i = 0; i < fragment.count; ++i) {
    const int64_t begin = fragment.tensor_offset + i * fragment.stride;
    ReadRun(item, dtype, {begin, begin + fragment.length},
            piece.data.subspan(static_cast<size_t>(i) * run_bytes, run_bytes));
  }
}

void PieceReader::ReadRun(const LoadItem& item, DType dtype, ElementRange range,
                          std::span<std::byte> out) {
  if (!item.tensor) {
    std::fill(out.begin(), out.end(), std::byte{0});
    return;
  }
  const auto& missing = checkpoint_.tensors()[*item.tensor].missing;
  const auto item_bytes = static_cast<size_t>(SizeBytes(dtype));
  while (range.size() > 0) {
    Part part = FirstPart(missing, range);
    const int64_t most =
        IsDirect(item, dtype) ? kDirectElements : kBlockElements;
    part.range.end = std::min(part.range.end, part.range.begin + most);
    const auto bytes = static_cast<size_t>(part.range.size()) * item_bytes;
    if (part.is_missing) {
      std::fill_n(out.begin(), bytes, std::byte{0});
    } else {
      ReadBlock(item, dtype, part.range, out.first(bytes));
    }
    range.begin = part.range.end;
    out = out.subspan(bytes);
  }
}

bool PieceReader::IsDirect(const LoadItem& item, DType dtype) const {
  return checkpoint_.tensors()[*item.tensor].dtype == dtype &&
         item.divisor == 1;
}

void PieceReader::ReadBlock(const LoadItem& item, DType dtype,
                            ElementRange range, std::span<std::byte> out) {
  const size_t tensor = *item.tensor;
  const DType stored = checkpoint_.tensors()[tensor].dtype;
  if (IsDirect(item, dtype)) {
    ReadTensor(checkpoint_, tensor, range, out);
    return;
  }
  const auto count = static_cast<size_t>(range.size());
  stored_.resize(count * static_cast<size_t>(SizeBytes(stored)));
  ReadTensor(checkpoint_, tensor, range, stored_);
  floats_.resize(count);
  if (item.divisor == 1) {
    ConvertToF32(stored, stored_, floats_);
  } else {
    doubles_.resize(count);
    ConvertToF64(stored, stored_, doubles_);
    std::transform(
        doubles_.begin(), doubles_.end(), floats_.begin(),
        [&](double value) { return static_cast<float>(value / item.divisor); });
  }
  ConvertFromF32(floats_, dtype, out);
}

}  // namespace muonstore
