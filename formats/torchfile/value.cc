#include "formats/torchfile/value.h"

#include <algorithm>
#include <vector>

#include "formats/torchfile/dict_key.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

bool IsDictLike(ValueType type) {
  return type == ValueType::kDict || type == ValueType::kObject;
}

// The last entry with this key, as a position in `items`.
std::optional<size_t> FindEntry(const ValueTree& tree, NodeId id,
                                const DictKey& key) {
  const std::span<const NodeId> items = tree.Items(id);
  const auto is_entry = [&](size_t entry) {
    return DictKey::Of(tree, items[2 * entry]) == key;
  };
  const auto index =
      tree.key_slots.find(static_cast<uint32_t>(tree.nodes[id].value));
  if (items.empty() || index == tree.key_slots.end()) {
    for (size_t i = items.size() / 2; i-- > 0;) {
      if (is_entry(i)) {
        return i;
      }
    }
    return std::nullopt;
  }
  const std::vector<KeySlot>& slots = index->second;
  const uint32_t hash = key.Hash();
  auto slot =
      std::upper_bound(slots.begin(), slots.end(), hash,
                       [](uint32_t h, const KeySlot& s) { return h < s.hash; });
  while (slot != slots.begin() && (--slot)->hash == hash) {
    if (is_entry(slot->entry)) {
      return slot->entry;
    }
  }
  return std::nullopt;
}

std::optional<Value> FindValue(const Value& dict, const DictKey& key) {
  const auto entry = FindEntry(dict.tree(), dict.id(), key);
  if (!entry.has_value()) {
    return std::nullopt;
  }
  return dict.entry(*entry).second;
}

std::vector<std::string> StringKeys(const Value& dict) {
  std::vector<std::string> keys;
  for (size_t i = 0; i < dict.size(); ++i) {
    const Value key = dict.entry(i).first;
    keys.push_back(key.is(ValueType::kString) ? Printable(key.AsString())
                                              : key.Describe(40));
  }
  return keys;
}

}  // namespace

void Value::FailExpected(std::string_view expected) const {
  ErrorPlace place;
  place.expected = expected;
  place.found = Describe(80);
  throw Error(ErrorCode::kDataLoss, "a value has the wrong type",
              std::move(place));
}

std::optional<Value> Value::Optional(NodeId id) const {
  return id == kNoNode ? std::nullopt : std::optional(Value(*tree_, id));
}

bool Value::AsBool() const {
  if (!is(ValueType::kBool)) {
    FailExpected("a bool");
  }
  return node().value != 0;
}

int64_t Value::AsInt() const {
  if (!is(ValueType::kInt) && !is(ValueType::kBool)) {
    FailExpected("an int of 64 bits");
  }
  return node().value;
}

double Value::AsNumber() const {
  if (is(ValueType::kFloat)) {
    return tree_->Real(id_);
  }
  if (!is(ValueType::kInt) && !is(ValueType::kBool)) {
    FailExpected("a number");
  }
  return static_cast<double>(node().value);
}

const std::string& Value::AsString() const {
  if (!is(ValueType::kString)) {
    FailExpected("a str");
  }
  return tree_->Text(id_);
}

const std::string& Value::AsBytes() const {
  if (!is(ValueType::kBytes)) {
    FailExpected("bytes");
  }
  return tree_->Text(id_);
}

const TensorInfo& Value::AsTensor() const {
  if (!is(ValueType::kTensor)) {
    FailExpected("a tensor");
  }
  return tree_->tensors[static_cast<size_t>(node().value)];
}

const StorageInfo& Value::AsStorage() const {
  if (!is(ValueType::kStorage)) {
    FailExpected("a storage");
  }
  return tree_->storages[static_cast<size_t>(node().value)];
}

const Global* Value::cls() const {
  if (is(ValueType::kGlobal)) {
    return &tree_->globals[static_cast<size_t>(node().value)];
  }
  const Parts* parts = tree_->PartsOf(id_);
  return parts == nullptr || parts->cls == kNoNode
             ? nullptr
             : &tree_->globals[parts->cls];
}

size_t Value::size() const {
  const size_t num_items = tree_->Items(id_).size();
  if (IsDictLike(type())) {
    return num_items / 2;
  }
  if (!is(ValueType::kList) && !is(ValueType::kTuple) && !is(ValueType::kSet)) {
    FailExpected("a container");
  }
  return num_items;
}

Value Value::at(size_t index) const {
  if (IsDictLike(type())) {
    FailExpected("a list or tuple");
  }
  if (index >= size()) {
    FailExpected(StrCat("at least ", index + 1, " items"));
  }
  return {*tree_, tree_->Items(id_)[index]};
}

std::optional<Value> Value::Find(std::string_view key) const {
  if (!IsDictLike(type())) {
    FailExpected("a dict");
  }
  return FindValue(*this, {DictKey::Kind::kString, 0, key});
}

std::optional<Value> Value::Find(int64_t key) const {
  if (!IsDictLike(type())) {
    FailExpected("a dict");
  }
  return FindValue(*this, {DictKey::Kind::kInt, key, {}});
}

Value Value::Get(std::string_view key) const {
  const std::optional<Value> found = Find(key);
  if (!found.has_value()) {
    ErrorPlace place;
    place.expected = StrCat("key '", Printable(key), "'");
    place.found =
        size() == 0 ? "an empty dict" : JoinNames(StringKeys(*this), 20);
    throw Error(ErrorCode::kDataLoss, "a dict lacks a key", std::move(place));
  }
  return *found;
}

std::pair<Value, Value> Value::entry(size_t index) const {
  if (!IsDictLike(type())) {
    FailExpected("a dict");
  }
  const std::span<const NodeId> items = tree_->Items(id_);
  if (index >= items.size() / 2) {
    FailExpected(StrCat("at least ", index + 1, " entries"));
  }
  return {Value(*tree_, items[2 * index]), Value(*tree_, items[2 * index + 1])};
}

std::optional<Value> Value::arg(size_t index) const {
  const Parts* parts = tree_->PartsOf(id_);
  if (parts == nullptr || parts->args == kNoNode ||
      index >= tree_->Items(parts->args).size()) {
    return std::nullopt;
  }
  return Value(*tree_, tree_->Items(parts->args)[index]);
}

std::optional<Value> Value::Attribute(std::string_view name) const {
  const auto in_dict = [&](const std::optional<Value>& dict) {
    return dict.has_value() && dict->is(ValueType::kDict) ? dict->Find(name)
                                                          : std::nullopt;
  };
  if (is(ValueType::kTensor)) {
    return in_dict(Optional(AsTensor().attributes));
  }
  const std::optional<Value> built = state();
  if (!built.has_value() || !built->is(ValueType::kTuple)) {
    return in_dict(built);
  }
  // A class with __slots__: (dict or None, slots).
  for (size_t i = 0; i < built->size(); ++i) {
    if (const auto found = in_dict(built->at(i))) {
      return found;
    }
  }
  return std::nullopt;
}

std::optional<Value> Value::state() const {
  const Parts* parts = tree_->PartsOf(id_);
  return parts == nullptr ? std::nullopt : Optional(parts->state);
}

std::optional<Value> Value::kwargs() const {
  const Parts* parts = tree_->PartsOf(id_);
  return parts == nullptr ? std::nullopt : Optional(parts->kwargs);
}

std::span<const NodeId> Value::list_items() const {
  const Parts* parts = tree_->PartsOf(id_);
  if (parts == nullptr || parts->list_items == kNoNode) {
    return {};
  }
  return tree_->lists[parts->list_items];
}

}  // namespace muonstore::torchfile
