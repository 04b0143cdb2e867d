// A torch file to be written: values, and storages whose bytes come later.
//
// What: builds a ValueTree node by node. Storages are declared by type and
//   size; who fills them is decided when the file is written: the caller, or,
//   for storages that a TreeCopier took over, the file that they came from.
// Ownership: a Draft owns its tree; copied storages keep their file open.
// Threads: belongs to one thread.
// Failures: Error(kInvalidArgument) for a tensor that leaves its storage.

#ifndef MUONSTORE_FORMATS_TORCHFILE_DRAFT_H_
#define MUONSTORE_FORMATS_TORCHFILE_DRAFT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/torchfile/memory_budget.h"
#include "formats/torchfile/torch_file.h"
#include "formats/torchfile/tree_builder.h"
#include "formats/torchfile/value_tree.h"

namespace muonstore::torchfile {

// A storage to be declared. Untyped: num_elements counts bytes, and tensors of
// any dtype may view it (torch needs that for fp8 and unsigned types).
struct StorageSpec {
  DType dtype = DType::kF32;
  bool untyped = false;
  int64_t num_elements = 0;
  std::string location = "cpu";
};

// A view into a declared storage. Counts are in elements of `dtype`.
struct TensorSpec {
  NodeId storage = kNoNode;
  DType dtype = DType::kF32;
  Shape shape;
  std::optional<std::vector<int64_t>> strides;  // Default: row-major.
  int64_t storage_offset = 0;
  bool requires_grad = false;
  // A dict of Python attributes, such as ds_id; kNoNode: none.
  NodeId attributes = kNoNode;
};

// cls(*args), or cls.__new__(cls, *args), with the state set by BUILD.
struct ObjectSpec {
  std::string_view module;
  std::string_view name;
  std::vector<NodeId> args;
  Construction construction = Construction::kNewObj;
  NodeId state = kNoNode;
};

// Where the bytes of a storage come from: no file means from the caller.
struct StorageSource {
  std::shared_ptr<const TorchFile> file;
  uint32_t storage = 0;  // Index into the file's storages.
};

class Draft {
 public:
  Draft();
  ~Draft() = default;
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  NodeId None() { return builder_.None(); }
  NodeId Bool(bool value) { return builder_.Bool(value); }
  NodeId Int(int64_t value) { return builder_.Int(value); }
  // Two's complement little-endian bytes, of any length.
  NodeId BigInt(std::string bytes) { return builder_.Long(std::move(bytes)); }
  NodeId Float(double value) { return builder_.Float(value); }
  // Equal texts share one node.
  NodeId Str(std::string_view text);
  NodeId Bytes(std::string bytes);
  NodeId List(std::span<const NodeId> items = {});
  NodeId Tuple(std::span<const NodeId> items);
  NodeId Set(std::span<const NodeId> items);
  NodeId Dict() { return builder_.Container(ValueType::kDict); }
  NodeId OrderedDict();
  // torch.Size.
  NodeId Size(const Shape& shape);
  NodeId Global(std::string_view module, std::string_view name);
  NodeId Object(const ObjectSpec& spec);

  void Append(NodeId list, NodeId item);
  void SetItem(NodeId dict, NodeId key, NodeId value);
  void SetItem(NodeId dict, std::string_view key, NodeId value);
  // What BUILD sets; for objects and for containers with a class.
  void SetState(NodeId object, NodeId state);

  NodeId Storage(const StorageSpec& spec);
  NodeId Tensor(const TensorSpec& spec);

  void set_root(NodeId root) { tree_.root = root; }
  const ValueTree& tree() const { return tree_; }
  Value value(NodeId id) const { return {tree_, id}; }
  // By index into tree().storages.
  const StorageSource& source(uint32_t storage) const {
    return sources_[storage];
  }

 private:
  friend class TreeCopier;

  NodeId AddStorage(StorageInfo info, StorageSource source);
  NodeId IntTuple(std::span<const int64_t> values);
  uint32_t GlobalIndex(std::string_view module, std::string_view name);
  NodeId Rebuild(std::string_view function, std::span<const NodeId> args,
                 TensorInfo info);
  NodeId WithAttributes(NodeId tensor, NodeId attributes);

  ValueTree tree_;
  MemoryBudget budget_;
  TreeBuilder builder_;
  std::vector<StorageSource> sources_;
  std::unordered_map<std::string, NodeId> strings_;
};

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_DRAFT_H_
