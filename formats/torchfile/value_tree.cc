#include "formats/torchfile/value_tree.h"

#include <bit>

namespace muonstore::torchfile {

std::string_view ValueTypeName(ValueType type) {
  switch (type) {
    case ValueType::kNone:
      return "None";
    case ValueType::kBool:
      return "bool";
    case ValueType::kInt:
    case ValueType::kBigInt:
      return "int";
    case ValueType::kFloat:
      return "float";
    case ValueType::kString:
      return "str";
    case ValueType::kBytes:
      return "bytes";
    case ValueType::kList:
      return "list";
    case ValueType::kTuple:
      return "tuple";
    case ValueType::kDict:
      return "dict";
    case ValueType::kSet:
      return "set";
    case ValueType::kGlobal:
      return "global";
    case ValueType::kObject:
      return "object";
    case ValueType::kTensor:
      return "tensor";
    case ValueType::kStorage:
      return "storage";
  }
  return "unknown";
}

bool TensorInfo::is_contiguous() const {
  const std::vector<int64_t>& dims = shape.dims();
  if (shape.num_elements() == 0) {
    return true;
  }
  int64_t expected = 1;
  for (size_t d = dims.size(); d-- > 0;) {
    if (dims[d] != 1 && strides[d] != expected) {
      return false;
    }
    expected *= dims[d];
  }
  return true;
}

std::span<const NodeId> ValueTree::Items(NodeId id) const {
  const Node& node = nodes[id];
  if (node.type == ValueType::kTuple) {
    const auto bits = static_cast<uint64_t>(node.value);
    const uint64_t count = bits >> 32;
    if (count == 0) {
      return {};
    }
    const uint64_t first = bits & 0xFFFFFFFFu;
    return std::span(pool[first / kPoolChunkItems])
        .subspan(first % kPoolChunkItems, count);
  }
  const bool holds_list =
      node.type == ValueType::kList || node.type == ValueType::kSet ||
      node.type == ValueType::kDict || node.type == ValueType::kObject;
  if (!holds_list || node.value < 0) {
    return {};
  }
  return lists[static_cast<size_t>(node.value)];
}

double ValueTree::Real(NodeId id) const {
  return std::bit_cast<double>(nodes[id].value);
}

}  // namespace muonstore::torchfile
