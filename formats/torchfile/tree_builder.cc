#include "formats/torchfile/tree_builder.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

// What a node of std::map costs beside its value.
constexpr uint64_t kMapNodeBytes = 48;

// The work for each occurrence of a global stays bounded.
constexpr size_t kMaxGlobalBytes = 1024;

// Drops bytes that only repeat the sign.
void TrimSign(std::string& bytes) {
  while (bytes.size() > 1) {
    const auto last = static_cast<unsigned char>(bytes[bytes.size() - 1]);
    const auto next = static_cast<unsigned char>(bytes[bytes.size() - 2]);
    const bool repeats_sign =
        (last == 0 && next < 0x80) || (last == 0xFF && next >= 0x80);
    if (!repeats_sign) {
      return;
    }
    bytes.pop_back();
  }
}

// Ids and indices have 32 bits.
void CheckIndex(uint64_t index) {
  if (index >= kNoNode) {
    throw Error(ErrorCode::kUnsupported,
                "the pickle has more than 4 billion values");
  }
}

}  // namespace

TreeBuilder::TreeBuilder(ValueTree& tree, MemoryBudget& budget)
    : tree_(tree), budget_(budget), ints_(kSharedInts, kNoNode) {}

NodeId TreeBuilder::Add(ValueType type, int64_t value) {
  CheckIndex(tree_.nodes.size());
  const auto id = static_cast<NodeId>(tree_.nodes.size());
  Node node;
  node.type = type;
  node.value = value;
  budget_.PushBack(tree_.nodes, node);
  return id;
}

NodeId TreeBuilder::Shared(NodeId& slot, ValueType type, int64_t value) {
  if (slot == kNoNode) {
    slot = Add(type, value);
  }
  return slot;
}

NodeId TreeBuilder::Int(int64_t value) {
  if (value >= 0 && value < kSharedInts) {
    return Shared(ints_[static_cast<size_t>(value)], ValueType::kInt, value);
  }
  return Add(ValueType::kInt, value);
}

NodeId TreeBuilder::Float(double value) {
  return Add(ValueType::kFloat, std::bit_cast<int64_t>(value));
}

NodeId TreeBuilder::Long(std::string bytes) {
  TrimSign(bytes);
  if (bytes.size() > sizeof(int64_t)) {
    return Text(ValueType::kBigInt, std::move(bytes));
  }
  const bool negative =
      !bytes.empty() && static_cast<unsigned char>(bytes.back()) >= 0x80;
  uint64_t value = negative ? ~uint64_t{0} : 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    value = (value << 8) | static_cast<unsigned char>(bytes[i]);
  }
  return Int(static_cast<int64_t>(value));
}

NodeId TreeBuilder::Text(ValueType type, std::string text) {
  budget_.PushBack(tree_.texts, std::move(text));
  return Add(type, static_cast<int64_t>(tree_.texts.size() - 1));
}

NodeId TreeBuilder::Tuple(std::span<const NodeId> items) {
  if (items.empty()) {
    return Shared(empty_tuple_, ValueType::kTuple, 0);
  }
  return Add(ValueType::kTuple, AddToPool(items));
}

NodeId TreeBuilder::TupleOf(NodeId sequence) {
  const Node& node = tree_.nodes[sequence];
  const int64_t range = node.type == ValueType::kTuple
                            ? node.value
                            : AddToPool(tree_.Items(sequence));
  return Add(ValueType::kTuple, range);
}

int64_t TreeBuilder::AddToPool(std::span<const NodeId> items) {
  if (items.empty()) {
    return 0;
  }
  auto& pool = tree_.pool;
  if (pool.empty() || pool.back().size() + items.size() > kPoolChunkItems) {
    CheckIndex((pool.size() + 1) * kPoolChunkItems);
    budget_.PushBack(pool, std::vector<NodeId>());
  }
  std::vector<NodeId>& chunk = pool.back();
  // The first one grows: most files are small.
  const size_t room = pool.size() > 1 && chunk.empty() ? kPoolChunkItems : 0;
  budget_.Grow(chunk, std::max(items.size(), room));
  const uint64_t first = (pool.size() - 1) * kPoolChunkItems + chunk.size();
  chunk.insert(chunk.end(), items.begin(), items.end());
  return static_cast<int64_t>(first | uint64_t{items.size()} << 32);
}

NodeId TreeBuilder::Container(ValueType type) { return Add(type, -1); }

NodeId TreeBuilder::GlobalNamed(std::string module, std::string name) {
  if (module.size() > kMaxGlobalBytes || name.size() > kMaxGlobalBytes) {
    throw Error(ErrorCode::kDataLoss, "a global's name is too long",
                {.expected = StrCat("at most ", kMaxGlobalBytes, " bytes"),
                 .found = StrCat(std::max(module.size(), name.size()))});
  }
  const auto next = static_cast<uint32_t>(tree_.globals.size());
  std::pair<std::string, std::string> key(std::move(module), std::move(name));
  const auto found = global_index_.find(key);
  if (found != global_index_.end()) {
    return global_nodes_[found->second];
  }
  budget_.Charge(kMapNodeBytes + sizeof(key));
  budget_.ChargeText(key.first.size());
  budget_.ChargeText(key.second.size());
  budget_.PushBack(tree_.globals, Global{key.first, key.second});
  budget_.PushBack(class_parts_, kNoNode);
  budget_.PushBack(global_nodes_, Add(ValueType::kGlobal, next));
  global_index_.emplace(std::move(key), next);
  return global_nodes_[next];
}

NodeId TreeBuilder::Tensor(TensorInfo info) {
  const NodeId id =
      Add(ValueType::kTensor, static_cast<int64_t>(tree_.tensors.size()));
  // Heap blocks of the shape and the strides; none is smaller than 32 bytes.
  constexpr size_t kMinBlockBytes = 32;
  const size_t dims_bytes = info.strides.size() * sizeof(int64_t) + 16;
  budget_.Charge(2 * std::max(kMinBlockBytes, dims_bytes));
  info.rebuild = id;
  budget_.PushBack(tree_.tensors, std::move(info));
  return id;
}

NodeId TreeBuilder::Storage(StorageInfo info) {
  const NodeId id =
      Add(ValueType::kStorage, static_cast<int64_t>(tree_.storages.size()));
  budget_.ChargeText(info.key.size());
  budget_.ChargeText(info.location.size());
  budget_.PushBack(tree_.storages, std::move(info));
  return id;
}

uint32_t TreeBuilder::NewList() {
  budget_.PushBack(tree_.lists, std::vector<NodeId>());
  return static_cast<uint32_t>(tree_.lists.size() - 1);
}

void TreeBuilder::AppendItems(NodeId id, std::span<const NodeId> items) {
  if (items.empty()) {
    return;
  }
  if (tree_.nodes[id].value < 0) {
    tree_.nodes[id].value = NewList();
  }
  std::vector<NodeId>& list =
      tree_.lists[static_cast<size_t>(tree_.nodes[id].value)];
  budget_.Grow(list, items.size());
  list.insert(list.end(), items.begin(), items.end());
}

void TreeBuilder::AppendListItems(NodeId id, std::span<const NodeId> items) {
  if (OwnParts(id).list_items == kNoNode) {
    const uint32_t index = NewList();
    OwnParts(id).list_items = index;
  }
  std::vector<NodeId>& list = tree_.lists[OwnParts(id).list_items];
  budget_.Grow(list, items.size());
  list.insert(list.end(), items.begin(), items.end());
}

Parts& TreeBuilder::OwnParts(NodeId id) {
  Node& node = tree_.nodes[id];
  const bool has_parts = node.parts != kNoNode;
  const Parts current = has_parts ? tree_.parts[node.parts] : Parts{};
  const bool is_shared = has_parts && current.cls != kNoNode &&
                         class_parts_[current.cls] == node.parts;
  if (!has_parts || is_shared) {
    budget_.PushBack(tree_.parts, current);
    node.parts = static_cast<uint32_t>(tree_.parts.size() - 1);
  }
  return tree_.parts[node.parts];
}

void TreeBuilder::SetClass(NodeId id, uint32_t global,
                           Construction construction) {
  if (class_parts_[global] == kNoNode) {
    Parts parts;
    parts.cls = global;
    budget_.PushBack(tree_.parts, parts);
    class_parts_[global] = static_cast<uint32_t>(tree_.parts.size() - 1);
  }
  tree_.nodes[id].parts = class_parts_[global];
  tree_.nodes[id].construction = construction;
}

}  // namespace muonstore::torchfile
