#include "tests/testutil/memory_checkpoint.h"

#include <algorithm>

#include "muonstore/error.h"

namespace muonstore::testutil {

size_t MemoryCheckpoint::Add(const MemoryTensor& tensor,
                             std::span<const std::byte> bytes) {
  CheckpointTensor info;
  info.key = {tensor.parameter, tensor.kind};
  info.shape = Shape(tensor.shape);
  info.dtype = tensor.dtype;
  info.group = tensor.group;
  info.optimizer = tensor.group < 0 ? Optimizer::kNone : Optimizer::kMuon;
  info.stored_bytes = bytes.size();
  const int64_t num_elements = info.shape.num_elements();
  const int64_t element_bytes = SizeBytes(tensor.dtype);
  if (static_cast<int64_t>(bytes.size()) != num_elements * element_bytes) {
    throw Error(ErrorCode::kInvalidArgument, "values do not fill the shape");
  }
  const int64_t piece =
      (num_elements + tensor.num_pieces - 1) / tensor.num_pieces;
  std::vector<Fragment> fragments;
  for (int32_t rank = tensor.num_pieces - 1; rank >= 0; --rank) {
    const int64_t begin = std::min(num_elements, rank * piece);
    const int64_t end = std::min(num_elements, begin + piece);
    if (begin == end) continue;
    fragments.push_back({.tensor_offset = begin,
                         .length = end - begin,
                         .segment = static_cast<int32_t>(segments_.size())});
    segments_.push_back({.rank = rank,
                         .kind = tensor.kind,
                         .dtype = tensor.dtype,
                         .num_elements = end - begin,
                         .file = "memory"});
    const auto part =
        bytes.subspan(static_cast<size_t>(begin * element_bytes),
                      static_cast<size_t>((end - begin) * element_bytes));
    data_.emplace_back(part.begin(), part.end());
  }
  tensors_.push_back(std::move(info));
  fragments_.push_back(std::move(fragments));
  return tensors_.size() - 1;
}

size_t MemoryCheckpoint::Add(const MemoryTensor& tensor,
                             const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() *
                               static_cast<size_t>(SizeBytes(tensor.dtype)));
  ConvertFromF32(values, tensor.dtype, bytes);
  return Add(tensor, bytes);
}

size_t MemoryCheckpoint::AddDerived(const std::string& parameter, DType dtype) {
  const auto master = FindTensor(*this, {parameter, StateKind(kMaster)});
  CheckpointTensor weight = tensors_.at(master.value());
  weight.key.kind = kWeight;
  weight.dtype = dtype;
  weight.stored_bytes = 0;
  weight.derived = true;
  tensors_.push_back(std::move(weight));
  fragments_.push_back(fragments_[*master]);
  return tensors_.size() - 1;
}

void MemoryCheckpoint::SetElement(size_t tensor, int64_t element,
                                  std::span<const std::byte> bytes) {
  for (const Fragment& fragment : fragments_[tensor]) {
    const int64_t at = element - fragment.tensor_offset;
    if (at < 0 || at >= fragment.length) continue;
    auto& data = data_[static_cast<size_t>(fragment.segment)];
    std::copy(bytes.begin(), bytes.end(),
              data.begin() + at * static_cast<std::ptrdiff_t>(bytes.size()));
  }
}

void MemoryCheckpoint::Poison(size_t tensor) {
  for (const Fragment& fragment : fragments_[tensor]) {
    poisoned_.insert(fragment.segment);
  }
}

void MemoryCheckpoint::ReadSegment(int32_t segment, int64_t first_element,
                                   std::span<std::byte> out) const {
  if (poisoned_.contains(segment)) {
    throw Error(ErrorCode::kDataLoss, "poisoned", {.file = "memory"});
  }
  const auto index = static_cast<size_t>(segment);
  const auto first =
      static_cast<size_t>(first_element * SizeBytes(segments_[index].dtype));
  const auto from = std::span(data_[index]).subspan(first, out.size());
  std::copy(from.begin(), from.end(), out.begin());
}

std::vector<float> UniqueValues(int64_t count, float scale) {
  std::vector<float> values;
  for (int64_t i = 1; i <= count; ++i) {
    values.push_back(scale * static_cast<float>(i));
  }
  return values;
}

}  // namespace muonstore::testutil
