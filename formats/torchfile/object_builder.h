// What pickle opcodes that make and fill objects mean, as data.
//
// What: calls, BUILD, APPEND(S), SETITEM(S), ADDITEMS and persistent ids. Known
//   globals are interpreted (globals_policy.h), others stay opaque objects;
//   nothing is imported or run.
// Ownership: borrows builder and storages.
// Threads: one thread.
// Failures: Error(kUnsupported) for what is refused or not supported,
//   Error(kDataLoss) for operands that no pickler writes.

#ifndef MUONSTORE_FORMATS_TORCHFILE_OBJECT_BUILDER_H_
#define MUONSTORE_FORMATS_TORCHFILE_OBJECT_BUILDER_H_

#include <span>
#include <unordered_map>
#include <vector>

#include "formats/torchfile/globals_policy.h"
#include "formats/torchfile/storage_table.h"
#include "formats/torchfile/tree_builder.h"

namespace muonstore::torchfile {

class ObjectBuilder {
 public:
  // Without `storages`, a persistent id is an error.
  ObjectBuilder(TreeBuilder& builder, StorageTable* storages)
      : builder_(builder), storages_(storages) {}

  // callee(*args), callee.__new__(callee, *args) or the same with kwargs.
  NodeId Call(NodeId callee, NodeId args, Construction construction,
              NodeId kwargs = kNoNode);
  // Sets the state of `object`, in place.
  void Build(NodeId object, NodeId state);
  void Append(NodeId object, std::span<const NodeId> items);
  // Key, value, key, value, ...
  void SetItems(NodeId object, std::span<const NodeId> items);
  void AddItems(NodeId object, std::span<const NodeId> items);
  NodeId Persistent(NodeId id);

 private:
  CallRule RuleOf(uint32_t global);
  void CheckState(const Value& state);
  void CheckStateNames(const Value& state);
  void RequireRebuild(const Value& function);
  NodeId Interpret(CallRule rule, NodeId callee, NodeId args);
  NodeId MakeObject(NodeId callee, NodeId args, Construction construction,
                    NodeId kwargs);
  NodeId MakeTensor(CallRule rule, NodeId callee, NodeId args);
  NodeId MakeFromType(NodeId callee, NodeId args);
  NodeId MakeSize(NodeId callee, NodeId args);
  NodeId MakeDict(NodeId callee, NodeId args);
  NodeId MakeDefaultDict(NodeId callee, NodeId args);
  NodeId MakeSet(CallRule rule, NodeId callee, NodeId args);
  NodeId MakeBytes(CallRule rule, NodeId callee, NodeId args);
  void AppendPairs(NodeId dict, const Value& pairs);
  void SetParts(NodeId id, NodeId callee, NodeId args);
  Value ValueOf(NodeId id) { return {builder_.tree(), id}; }

  TreeBuilder& builder_;
  StorageTable* storages_;
  std::vector<CallRule> rules_;  // By global, as far as looked up.
  // Entries of a state dict whose names are known to be harmless.
  std::unordered_map<NodeId, size_t> checked_entries_;
};

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_OBJECT_BUILDER_H_
