#include "formats/torchfile/draft.h"

#include <array>
#include <limits>
#include <utility>

#include "formats/torchfile/globals_policy.h"
#include "formats/torchfile/storage_table.h"
#include "formats/torchfile/tensor_rebuild.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

// What is written is our own: nothing to defend against.
constexpr uint64_t kUnlimitedBytes = std::numeric_limits<uint64_t>::max() / 2;

}  // namespace

Draft::Draft() : budget_(kUnlimitedBytes), builder_(tree_, budget_) {
  tree_.protocol = 2;
}

NodeId Draft::Str(std::string_view text) {
  const auto [found, is_new] = strings_.try_emplace(std::string(text), kNoNode);
  if (is_new) {
    found->second = builder_.Text(ValueType::kString, std::string(text));
  }
  return found->second;
}

NodeId Draft::Bytes(std::string bytes) {
  return builder_.Text(ValueType::kBytes, std::move(bytes));
}

NodeId Draft::List(std::span<const NodeId> items) {
  const NodeId list = builder_.Container(ValueType::kList);
  builder_.AppendItems(list, items);
  return list;
}

NodeId Draft::Tuple(std::span<const NodeId> items) {
  return builder_.Tuple(items);
}

NodeId Draft::Set(std::span<const NodeId> items) {
  const NodeId set = builder_.Container(ValueType::kSet);
  builder_.AppendItems(set, items);
  return set;
}

NodeId Draft::OrderedDict() {
  const NodeId dict = Dict();
  builder_.SetClass(dict, GlobalIndex("collections", "OrderedDict"),
                    Construction::kReduce);
  return dict;
}

NodeId Draft::IntTuple(std::span<const int64_t> values) {
  std::vector<NodeId> items;
  items.reserve(values.size());
  for (const int64_t value : values) {
    items.push_back(Int(value));
  }
  return builder_.Tuple(items);
}

NodeId Draft::Size(const Shape& shape) {
  const NodeId size = builder_.TupleOf(IntTuple(shape.dims()));
  builder_.SetClass(size, GlobalIndex("torch", "Size"), Construction::kReduce);
  return size;
}

NodeId Draft::Global(std::string_view module, std::string_view name) {
  return builder_.GlobalNamed(std::string(module), std::string(name));
}

uint32_t Draft::GlobalIndex(std::string_view module, std::string_view name) {
  return static_cast<uint32_t>(tree_.nodes[Global(module, name)].value);
}

NodeId Draft::Object(const ObjectSpec& spec) {
  const NodeId object = builder_.Container(ValueType::kObject);
  builder_.SetClass(object, GlobalIndex(spec.module, spec.name),
                    spec.construction);
  if (!spec.args.empty()) {
    const NodeId args = Tuple(spec.args);
    builder_.OwnParts(object).args = args;
  }
  if (spec.state != kNoNode) {
    SetState(object, spec.state);
  }
  return object;
}

void Draft::Append(NodeId list, NodeId item) {
  builder_.AppendItems(list, std::array{item});
}

void Draft::SetItem(NodeId dict, NodeId key, NodeId value) {
  builder_.AppendItems(dict, std::array{key, value});
}

void Draft::SetItem(NodeId dict, std::string_view key, NodeId value) {
  SetItem(dict, Str(key), value);
}

void Draft::SetState(NodeId object, NodeId state) {
  builder_.OwnParts(object).state = state;
}

NodeId Draft::AddStorage(StorageInfo info, StorageSource source) {
  sources_.push_back(std::move(source));
  return builder_.Storage(std::move(info));
}

NodeId Draft::Storage(const StorageSpec& spec) {
  StorageInfo info;
  info.location = spec.location;
  info.untyped = spec.untyped;
  info.dtype = spec.untyped ? DType::kU8 : spec.dtype;
  const std::string_view cls =
      spec.untyped ? "UntypedStorage" : StorageClassName(spec.dtype);
  if (cls.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("torch has no typed storage of ", DTypeName(spec.dtype),
                       "; declare it untyped"));
  }
  info.cls = GlobalIndex(spec.untyped ? "torch.storage" : "torch", cls);
  info.num_elements = spec.num_elements;
  info.record_elements = spec.num_elements;
  info.size_bytes = StorageBytes(info, spec.num_elements);
  return AddStorage(std::move(info), {});
}

NodeId Draft::Rebuild(std::string_view function, std::span<const NodeId> args,
                      TensorInfo info) {
  const NodeId tensor = builder_.Tensor(std::move(info));
  const std::string_view module =
      function == "_rebuild_from_type_v2" ? "torch._tensor" : "torch._utils";
  builder_.SetClass(tensor, GlobalIndex(module, function),
                    Construction::kReduce);
  const NodeId tuple = Tuple(args);
  builder_.OwnParts(tensor).args = tuple;
  return tensor;
}

NodeId Draft::Tensor(const TensorSpec& spec) {
  const StorageInfo& storage = value(spec.storage).AsStorage();
  TensorInfo info;
  info.storage = static_cast<uint32_t>(tree_.nodes[spec.storage].value);
  info.dtype = spec.dtype;
  info.shape = spec.shape;
  info.strides = spec.strides.value_or(spec.shape.ContiguousStrides());
  info.storage_offset = spec.storage_offset;
  info.requires_grad = spec.requires_grad;
  CheckView(info, storage);
  std::vector<NodeId> args = {spec.storage,
                              Int(spec.storage_offset),
                              IntTuple(spec.shape.dims()),
                              IntTuple(info.strides),
                              Bool(spec.requires_grad),
                              OrderedDict()};
  if (storage.untyped) {
    args.push_back(Global("torch", TorchDTypeName(spec.dtype)));
  } else if (storage.dtype != spec.dtype) {
    throw Error(ErrorCode::kInvalidArgument,
                "a tensor has another dtype than its storage",
                {.expected = std::string(DTypeName(storage.dtype)),
                 .found = std::string(DTypeName(spec.dtype))});
  }
  const NodeId tensor =
      Rebuild(storage.untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2",
              args, std::move(info));
  return spec.attributes == kNoNode ? tensor
                                    : WithAttributes(tensor, spec.attributes);
}

// As torch does for a tensor that carries Python attributes.
NodeId Draft::WithAttributes(NodeId tensor, NodeId attributes) {
  TensorInfo info = value(tensor).AsTensor();
  info.attributes = attributes;
  const Parts& inner = *tree_.PartsOf(tensor);
  const auto& function = tree_.globals[inner.cls];
  const std::array args = {Global(function.module, function.name),
                           Global("torch", "Tensor"), inner.args, attributes};
  return Rebuild("_rebuild_from_type_v2", args, std::move(info));
}

}  // namespace muonstore::torchfile
