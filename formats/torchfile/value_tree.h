// The arena behind torchfile::Value: plain structs, compact.
//
// What: 16-byte nodes refer to side tables by index: a pickle of 100,000
//   tensors has a million nodes. Everything that a writer needs to emit the
//   pickle again is kept: classes, constructions, arguments, states, tuple
//   against list, storages by key.
// Ownership: a ValueTree owns everything in it.
// Threads: immutable after parsing.
// Failures: none; `Value` (value.h) is the checked door.

#ifndef MUONSTORE_FORMATS_TORCHFILE_VALUE_TREE_H_
#define MUONSTORE_FORMATS_TORCHFILE_VALUE_TREE_H_

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "muonstore/dtype.h"
#include "muonstore/shape.h"

namespace muonstore::torchfile {

using NodeId = uint32_t;
inline constexpr NodeId kNoNode = 0xFFFFFFFFu;

enum class ValueType : uint8_t {
  kNone,
  kBool,
  kInt,     // Fits into int64_t.
  kBigInt,  // Two's complement little-endian bytes, beyond int64_t.
  kFloat,
  kString,  // UTF-8; lone surrogates as in Python's "surrogatepass".
  kBytes,   // Also bytearray (cls set).
  kList,
  kTuple,    // Also torch.Size (cls set).
  kDict,     // Insertion order; also OrderedDict, defaultdict, Counter (cls).
  kSet,      // Also frozenset (cls set).
  kGlobal,   // A class or function named, not called.
  kObject,   // A call or instance of an unknown global, kept as data.
  kTensor,   // One of ValueTree::tensors.
  kStorage,  // One of ValueTree::storages.
};

std::string_view ValueTypeName(ValueType type);

// A class or function by name; never imported.
struct Global {
  std::string module;
  std::string name;

  std::string ToString() const { return module + "." + name; }
  friend bool operator==(const Global&, const Global&) = default;
};

// How an object came to be; a writer repeats it.
enum class Construction : uint8_t {
  kNone,      // A plain Python container or scalar.
  kReduce,    // cls(*args)
  kNewObj,    // cls.__new__(cls, *args)
  kNewObjEx,  // cls.__new__(cls, *args, **kwargs)
};

// What objects, tensors and container subclasses have beyond their items.
// Nodes that look alike may share one entry.
struct Parts {
  uint32_t cls = kNoNode;         // Index into ValueTree::globals.
  NodeId args = kNoNode;          // Tuple; kNoNode: no arguments.
  NodeId kwargs = kNoNode;        // Dict, only for kNewObjEx.
  NodeId state = kNoNode;         // Of BUILD, also on containers.
  uint32_t list_items = kNoNode;  // Of APPENDS; index into ValueTree::lists.
};

struct Node {
  ValueType type = ValueType::kNone;
  Construction construction = Construction::kNone;
  uint32_t parts = kNoNode;  // Index into ValueTree::parts.
  // kBool, kInt: the value. kFloat: its IEEE 754 bits. kString, kBytes,
  // kBigInt: index into texts. kGlobal, kTensor, kStorage: index into globals,
  // tensors, storages. kTuple: first item in `pool` (the chunk times
  // kPoolChunkItems, plus the place in it) + (count << 32). kList,
  // kSet, kDict, kObject: index into lists, or -1 when empty; dicts and objects
  // hold key, value, key, value, ...
  int64_t value = 0;
};

// One storage: a record of raw elements in the file, or (old legacy streams
// only) a piece of one.
struct StorageInfo {
  std::string key;         // "0": the record data/0; a legacy stream's key.
  std::string location;    // "cpu", "cuda:0": where it lived.
  uint32_t cls = kNoNode;  // ValueTree::globals: torch.FloatStorage, ...
  uint32_t record = 0;     // Index into TorchFile::records().
  bool untyped = false;    // num_elements counts bytes; dtype is kU8.
  DType dtype = DType::kU8;
  int64_t num_elements = 0;
  int64_t first_element = 0;    // In the record; 0 but for legacy views.
  int64_t record_elements = 0;  // Of the whole record.
  uint64_t offset_bytes = 0;    // Of its data in the file.
  uint64_t size_bytes = 0;      // Of its data in the file.
};

// A view into a storage. Bounds are checked against the storage when the file
// is opened.
struct TensorInfo {
  uint32_t storage = 0;  // Index into ValueTree::storages.
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<int64_t> strides;  // In elements, one a dimension, >= 0.
  int64_t storage_offset = 0;    // In elements of `dtype`.
  bool requires_grad = false;
  bool is_conj = false;  // Lazy bits: values read must be conjugated/negated.
  bool is_neg = false;
  bool is_parameter = false;
  NodeId attributes = kNoNode;  // Dict of Python attributes, or kNoNode.
  NodeId rebuild = kNoNode;     // Its own node, whose parts hold the call.

  bool is_contiguous() const;
};

// An entry of a dict, by its key's hash.
struct KeySlot {
  uint32_t hash = 0;
  uint32_t entry = 0;
};

// A tuple lies in one chunk; one longer than this has a chunk of its own.
inline constexpr uint64_t kPoolChunkItems = 1 << 14;

// Deques and chunks: no slack, and no second copy while they grow.
struct ValueTree {
  std::deque<Node> nodes;
  std::deque<std::string> texts;
  std::vector<std::vector<NodeId>> pool;  // Items of tuples, in chunks.
  std::deque<std::vector<NodeId>> lists;  // Items of everything else.
  std::deque<Parts> parts;
  std::vector<Global> globals;
  std::deque<StorageInfo> storages;
  std::deque<TensorInfo> tensors;
  // For each large dict, by its index into `lists`: entries whose key is an int
  // or a string, ordered by hash and then as in the file.
  std::unordered_map<uint32_t, std::vector<KeySlot>> key_slots;
  NodeId root = kNoNode;
  int protocol = 0;

  // Items of a container or object; empty for other nodes.
  std::span<const NodeId> Items(NodeId id) const;
  const std::string& Text(NodeId id) const {
    return texts[static_cast<size_t>(nodes[id].value)];
  }
  double Real(NodeId id) const;
  // nullptr for a node without parts.
  const Parts* PartsOf(NodeId id) const {
    return nodes[id].parts == kNoNode ? nullptr : &parts[nodes[id].parts];
  }
};

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_VALUE_TREE_H_
