// A node gets its copy before its children do (`Map`), and is filled later from
// a list (`Fill`): so cycles end, and deep trees need no deep stack.

#include "formats/torchfile/tree_copier.h"

#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {

TreeCopier::TreeCopier(Draft& draft, std::shared_ptr<const TorchFile> source,
                       Replace replace)
    : draft_(draft), source_(std::move(source)), replace_(std::move(replace)) {}

NodeId TreeCopier::Copy(NodeId node) {
  const NodeId copy = Map(node);
  while (!pending_.empty()) {
    const NodeId from = pending_.back();
    pending_.pop_back();
    Fill(from);
  }
  return copy;
}

NodeId TreeCopier::Map(NodeId node) {
  const auto known = copies_.find(node);
  if (known != copies_.end()) {
    return known->second;
  }
  const Value value(source_->tree(), node);
  const bool is_storage = value.is(ValueType::kStorage);
  if (is_storage) {
    return MapStorage(static_cast<uint32_t>(value.node().value));
  }
  std::optional<NodeId> copy = replace_ ? replace_(value) : std::nullopt;
  if (!copy.has_value()) {
    copy = Start(value);
    pending_.push_back(node);
  }
  copies_.emplace(node, *copy);
  return *copy;
}

// A node of its own for everything that has children or a class.
NodeId TreeCopier::Start(const Value& value) {
  TreeBuilder& builder = draft_.builder_;
  switch (value.type()) {
    case ValueType::kNone:
      return builder.None();
    case ValueType::kBool:
      return builder.Bool(value.AsBool());
    case ValueType::kInt:
      return builder.Int(value.AsInt());
    case ValueType::kFloat:
      return builder.Float(value.AsNumber());
    case ValueType::kBigInt:
    case ValueType::kString:
    case ValueType::kBytes:
      return builder.Text(value.type(), value.tree().Text(value.id()));
    case ValueType::kGlobal:
      return draft_.Global(value.cls()->module, value.cls()->name);
    case ValueType::kTensor:
      return StartTensor(value);
    default:
      return builder.Container(value.type());
  }
}

NodeId TreeCopier::StartTensor(const Value& value) {
  TensorInfo info = value.AsTensor();
  const NodeId storage = MapStorage(info.storage);
  info.storage = static_cast<uint32_t>(draft_.tree_.nodes[storage].value);
  info.attributes = kNoNode;
  return draft_.builder_.Tensor(std::move(info));
}

NodeId TreeCopier::MapStorage(uint32_t storage) {
  const auto known = storages_.find(storage);
  if (known != storages_.end()) {
    return known->second;
  }
  StorageInfo info = source_->tree().storages[storage];
  if (info.num_elements != info.record_elements) {
    throw Error(ErrorCode::kUnsupported,
                "a storage that is a piece of another one, as torch 0.3 wrote "
                "them; load the file with torch and save it again",
                {.file = source_->path()});
  }
  if (source_->is_big_endian() && info.untyped) {
    throw Error(ErrorCode::kUnsupported,
                "an untyped storage of a big-endian machine; load the file "
                "with torch and save it again",
                {.file = source_->path()});
  }
  info.cls = MapGlobal(info.cls);
  const NodeId copy = draft_.AddStorage(std::move(info), {source_, storage});
  storages_.emplace(storage, copy);
  return copy;
}

uint32_t TreeCopier::MapGlobal(uint32_t global) {
  const Global& name = source_->tree().globals[global];
  return draft_.GlobalIndex(name.module, name.name);
}

NodeId TreeCopier::MapOptional(NodeId node) {
  return node == kNoNode ? kNoNode : Map(node);
}

std::vector<NodeId> TreeCopier::MapAll(std::span<const NodeId> nodes) {
  std::vector<NodeId> copies;
  copies.reserve(nodes.size());
  for (const NodeId node : nodes) {
    copies.push_back(Map(node));
  }
  return copies;
}

void TreeCopier::Fill(NodeId from) {
  const Value value(source_->tree(), from);
  const NodeId to = copies_.at(from);
  FillItems(value, to);
  FillParts(value, to);
  if (value.is(ValueType::kTensor)) {
    const NodeId attributes = MapOptional(value.AsTensor().attributes);
    const auto tensor = static_cast<size_t>(draft_.tree_.nodes[to].value);
    draft_.tree_.tensors[tensor].attributes = attributes;
  }
}

void TreeCopier::FillItems(const Value& from, NodeId to) {
  const std::vector<NodeId> items = MapAll(source_->tree().Items(from.id()));
  if (from.is(ValueType::kTuple)) {
    const NodeId tuple = draft_.builder_.Tuple(items);
    draft_.tree_.nodes[to].value = draft_.tree_.nodes[tuple].value;
  } else {
    draft_.builder_.AppendItems(to, items);
  }
}

void TreeCopier::FillParts(const Value& from, NodeId to) {
  const Parts* parts = source_->tree().PartsOf(from.id());
  if (parts == nullptr) {
    return;
  }
  TreeBuilder& builder = draft_.builder_;
  if (parts->cls != kNoNode) {
    builder.SetClass(to, MapGlobal(parts->cls), from.node().construction);
  }
  const NodeId args = MapOptional(parts->args);
  const NodeId kwargs = MapOptional(parts->kwargs);
  const NodeId state = MapOptional(parts->state);
  if (args != kNoNode || kwargs != kNoNode || state != kNoNode) {
    Parts& copy = builder.OwnParts(to);
    copy.args = args;
    copy.kwargs = kwargs;
    copy.state = state;
  }
  if (!from.list_items().empty()) {
    builder.AppendListItems(to, MapAll(from.list_items()));
  }
}

}  // namespace muonstore::torchfile
