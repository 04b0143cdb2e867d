// Adds nodes to a ValueTree under a memory budget.
//
// What: values that cannot change (None, bools, small ints, globals) are
// shared. Ownership: borrows the tree and the budget, which must outlive it.
// Threads: one thread.
// Failures: Error(kResourceExhausted) from the budget.

#ifndef MUONSTORE_FORMATS_TORCHFILE_TREE_BUILDER_H_
#define MUONSTORE_FORMATS_TORCHFILE_TREE_BUILDER_H_

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/torchfile/memory_budget.h"
#include "formats/torchfile/value_tree.h"

namespace muonstore::torchfile {

class TreeBuilder {
 public:
  TreeBuilder(ValueTree& tree, MemoryBudget& budget);

  ValueTree& tree() { return tree_; }
  MemoryBudget& budget() { return budget_; }

  NodeId None() { return Shared(none_, ValueType::kNone, 0); }
  NodeId Bool(bool value) {
    return Shared(bools_[value ? 1 : 0], ValueType::kBool, value ? 1 : 0);
  }
  NodeId Int(int64_t value);
  NodeId Float(double value);
  // Two's complement little-endian bytes, of any length: kInt or kBigInt.
  NodeId Long(std::string bytes);
  // kString, kBytes. The text's heap part was charged by whoever read it.
  NodeId Text(ValueType type, std::string text);
  // `items` must not be those of a tuple of this tree.
  NodeId Tuple(std::span<const NodeId> items);
  // A tuple node of its own with the items of a tuple or list.
  NodeId TupleOf(NodeId sequence);
  // An empty kList, kDict or kSet, or a kObject.
  NodeId Container(ValueType type);
  // A node for a global; one entry in `globals` a name.
  NodeId GlobalNamed(std::string module, std::string name);
  NodeId Tensor(TensorInfo info);
  NodeId Storage(StorageInfo info);

  // Appends to the items of a container or object.
  void AppendItems(NodeId id, std::span<const NodeId> items);
  // Appends to an object's list items.
  void AppendListItems(NodeId id, std::span<const NodeId> items);

  // Gives a node its own parts, a copy of those it shared until now.
  Parts& OwnParts(NodeId id);
  // Parts that only name a class; shared by all such nodes.
  void SetClass(NodeId id, uint32_t global, Construction construction);

 private:
  NodeId Add(ValueType type, int64_t value);
  NodeId Shared(NodeId& slot, ValueType type, int64_t value);
  int64_t AddToPool(std::span<const NodeId> items);
  uint32_t NewList();

  static constexpr int64_t kSharedInts = 4096;

  ValueTree& tree_;
  MemoryBudget& budget_;
  NodeId none_ = kNoNode;
  NodeId empty_tuple_ = kNoNode;
  std::array<NodeId, 2> bools_ = {kNoNode, kNoNode};
  std::vector<NodeId> ints_;           // 0 .. kSharedInts - 1.
  std::vector<NodeId> global_nodes_;   // By global.
  std::vector<uint32_t> class_parts_;  // By global.
  std::map<std::pair<std::string, std::string>, uint32_t> global_index_;
};

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_TREE_BUILDER_H_
