// The value tree of a pickle: what the file says, never executed.
//
// What: a pickle is parsed into an arena of nodes. Containers and scalars
//   become themselves; tensors and storages are recognized; every other class
//   or call stays an opaque object that records its global, arguments, state
//   and items, so that a writer can emit it again. Shared nodes keep one id,
//   cycles are legal.
// Ownership: a ValueTree owns all nodes; a Value is a cursor into it and must
//   not outlive it.
// Threads: immutable after parsing.
// Failures: accessors throw Error(kDataLoss) that says what was expected and
//   what was found; the caller adds the file.

#ifndef MUONSTORE_FORMATS_TORCHFILE_VALUE_H_
#define MUONSTORE_FORMATS_TORCHFILE_VALUE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "formats/torchfile/value_tree.h"

namespace muonstore::torchfile {

// A cursor. Cheap to copy.
class Value {
 public:
  Value(const ValueTree& tree, NodeId id) : tree_(&tree), id_(id) {}

  const ValueTree& tree() const { return *tree_; }
  NodeId id() const { return id_; }
  const Node& node() const { return tree_->nodes[id_]; }
  ValueType type() const { return node().type; }
  bool is(ValueType type) const { return node().type == type; }
  bool is_none() const { return is(ValueType::kNone); }

  // Typed access; another type is Error(kDataLoss).
  bool AsBool() const;
  int64_t AsInt() const;    // kInt or kBool.
  double AsNumber() const;  // kInt, kBool or kFloat.
  const std::string& AsString() const;
  const std::string& AsBytes() const;
  const TensorInfo& AsTensor() const;
  const StorageInfo& AsStorage() const;
  // The class of a kGlobal, kObject or container subclass; the function that
  // rebuilds a tensor.
  const Global* cls() const;

  // Sequences: kList, kTuple, kSet.
  size_t size() const;  // Also dicts: number of entries.
  Value at(size_t index) const;

  // Dicts, and objects with items. `Find` gives nullopt where the key is
  // absent, and the last value where a key is set twice, as Python does; `Get`
  // throws and names the key and those that are there. Fast for large dicts,
  // too.
  std::optional<Value> Find(std::string_view key) const;
  std::optional<Value> Find(int64_t key) const;
  Value Get(std::string_view key) const;
  // Key and value of entry `index`, in file order.
  std::pair<Value, Value> entry(size_t index) const;

  // Objects: a constructor argument, and an attribute set by BUILD. Attributes
  // of tensors and of containers are found in the same way.
  std::optional<Value> arg(size_t index) const;
  std::optional<Value> Attribute(std::string_view name) const;
  // What BUILD set, and the keyword arguments of the construction.
  std::optional<Value> state() const;
  std::optional<Value> kwargs() const;
  // What APPENDS gave an object that is no plain list.
  std::span<const NodeId> list_items() const;

  // A short rendering for messages and listings: "int 5",
  // "deepspeed...LossScaler{cur_scale: 1.0, ...}"; at most `limit` bytes, also
  // for cycles and deep nesting.
  std::string Describe(size_t limit = 200) const;

 private:
  std::optional<Value> Optional(NodeId id) const;
  [[noreturn]] void FailExpected(std::string_view expected) const;

  const ValueTree* tree_;
  NodeId id_;
};

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_VALUE_H_
