#include "formats/torchfile/pickler.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "formats/torchfile/text_codec.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

constexpr size_t kBatchItems = 1000;  // As CPython.
// How often a value may occur within itself before it is given up.
constexpr uint32_t kMaxReentries = 256;

class Pickler {
 public:
  explicit Pickler(const ValueTree& tree) : tree_(tree) {}

  Pickled Run();

 private:
  enum class Step : uint8_t {
    kSave,         // The node.
    kOp,           // One opcode.
    kListItems,    // Of the node from `next` on, in batches; so the others.
    kObjectItems,  // List items of an object.
    kDictItems,
    kEndTuple,   // The items are on the stack.
    kEndReduce,  // Class and arguments are.
    kEndSize,
    kEndSet,  // set and its list of items are.
  };
  struct Task {
    Step step = Step::kSave;
    char op = 0;
    NodeId node = kNoNode;
    size_t next = 0;
  };
  // A value that is being made: cycles through it run into itself.
  struct Open {
    uint32_t depth = 0;
    uint32_t num_memo_entries = 0;
  };

  void Do(const Task& task);
  void Save(NodeId id);
  void SaveScalar(const Node& node);
  void SaveShared(NodeId id);
  void SaveTuple(NodeId id);
  void SaveSize(NodeId id);
  void SaveSet(NodeId id);
  void SaveBytes(NodeId id);
  void SaveReduce(NodeId id);
  void SaveStorage(NodeId id);
  void EndTuple(NodeId id);
  void EndReduce(NodeId id);
  void EndSize(NodeId id);
  void EndSet(NodeId id);
  void WriteTuple(size_t num_items);
  void WriteCall();
  void Items(const Task& task, std::span<const NodeId> items, size_t stride,
             char one, char many);
  void PushItemSteps(NodeId id);

  void Enter(NodeId id);
  bool Finish(NodeId id);
  void Remember(NodeId id) { memo_.emplace(id, writer_.Put()); }
  void Push(Step step, NodeId node) { tasks_.push_back({step, 0, node, 0}); }
  void PushOp(char op) { tasks_.push_back({Step::kOp, op, kNoNode, 0}); }
  void PushAll(std::span<const NodeId> nodes);
  const Global* ClassOf(NodeId id) const;

  const ValueTree& tree_;
  PickleWriter writer_;
  std::vector<Task> tasks_;  // A stack.
  std::unordered_map<NodeId, uint32_t> memo_;
  std::unordered_map<NodeId, Open> open_;
  std::unordered_map<uint32_t, uint32_t> storage_keys_;
  std::vector<uint32_t> storages_;
};

Pickled Pickler::Run() {
  Push(Step::kSave, tree_.root);
  while (!tasks_.empty()) {
    const Task task = tasks_.back();
    tasks_.pop_back();
    Do(task);
  }
  writer_.Op(opcode::kStop);
  return {std::move(writer_).Take(), std::move(storages_)};
}

void Pickler::Do(const Task& task) {
  switch (task.step) {
    case Step::kSave:
      return Save(task.node);
    case Step::kOp:
      return writer_.Op(task.op);
    case Step::kListItems:
      return Items(task, tree_.Items(task.node), 1, opcode::kAppend,
                   opcode::kAppends);
    case Step::kObjectItems:
      return Items(task, tree_.lists[tree_.PartsOf(task.node)->list_items], 1,
                   opcode::kAppend, opcode::kAppends);
    case Step::kDictItems:
      return Items(task, tree_.Items(task.node), 2, opcode::kSetItem,
                   opcode::kSetItems);
    case Step::kEndTuple:
      return EndTuple(task.node);
    case Step::kEndReduce:
      return EndReduce(task.node);
    case Step::kEndSize:
      return EndSize(task.node);
    case Step::kEndSet:
      return EndSet(task.node);
  }
}

// The last pushed is done first.
void Pickler::PushAll(std::span<const NodeId> nodes) {
  for (size_t i = nodes.size(); i-- > 0;) {
    Push(Step::kSave, nodes[i]);
  }
}

const Global* Pickler::ClassOf(NodeId id) const {
  const Parts* parts = tree_.PartsOf(id);
  return parts == nullptr || parts->cls == kNoNode ? nullptr
                                                   : &tree_.globals[parts->cls];
}

void Pickler::Save(NodeId id) {
  const Node& node = tree_.nodes[id];
  switch (node.type) {
    case ValueType::kNone:
    case ValueType::kBool:
    case ValueType::kInt:
    case ValueType::kBigInt:
    case ValueType::kFloat:
      return SaveScalar(node);
    case ValueType::kStorage:
      return SaveStorage(id);
    default:
      break;
  }
  const auto known = memo_.find(id);
  if (known != memo_.end()) {
    writer_.Get(known->second);
  } else {
    SaveShared(id);
  }
}

void Pickler::SaveScalar(const Node& node) {
  switch (node.type) {
    case ValueType::kBool:
      return writer_.Op(node.value != 0 ? opcode::kTrue : opcode::kFalse);
    case ValueType::kInt:
      return writer_.Int(node.value);
    case ValueType::kBigInt:
      return writer_.BigInt(tree_.texts[static_cast<size_t>(node.value)]);
    case ValueType::kFloat:
      return writer_.Float(std::bit_cast<double>(node.value));
    default:
      return writer_.Op(opcode::kNone);
  }
}

void Pickler::SaveShared(NodeId id) {
  switch (tree_.nodes[id].type) {
    case ValueType::kString:
      writer_.Str(tree_.Text(id));
      return Remember(id);
    case ValueType::kGlobal: {
      const auto& global =
          tree_.globals[static_cast<size_t>(tree_.nodes[id].value)];
      return writer_.Global(global.module, global.name);
    }
    case ValueType::kBytes:
      return SaveBytes(id);
    case ValueType::kTuple:
      return ClassOf(id) == nullptr ? SaveTuple(id) : SaveSize(id);
    case ValueType::kSet:
      return SaveSet(id);
    default:
      break;
  }
  if (ClassOf(id) != nullptr) {
    return SaveReduce(id);
  }
  const bool is_list = tree_.nodes[id].type == ValueType::kList;
  writer_.Op(is_list ? opcode::kEmptyList : opcode::kEmptyDict);
  Remember(id);
  Push(is_list ? Step::kListItems : Step::kDictItems, id);
}

// `node`'s items from `next` on: one batch now, the rest in a task.
void Pickler::Items(const Task& task, std::span<const NodeId> items,
                    size_t stride, char one, char many) {
  const size_t left = (items.size() - task.next) / stride;
  if (left == 0) {
    return;
  }
  const size_t count = std::min(left, kBatchItems);
  Task rest = task;
  rest.next += count * stride;
  tasks_.push_back(rest);
  if (count > 1) {
    writer_.Op(opcode::kMark);
  }
  PushOp(count > 1 ? many : one);
  PushAll(items.subspan(task.next, count * stride));
}

// A value that must be complete before it is made: where it is met again
// before that, it is made again inside; the outer one then takes the inner.
// That ends only if something in between was remembered.
void Pickler::Enter(NodeId id) {
  Open& open = open_[id];
  const bool is_stuck =
      open.depth > 0 && open.num_memo_entries == writer_.num_memo_entries();
  if (is_stuck || open.depth > kMaxReentries) {
    throw Error(ErrorCode::kUnsupported,
                "a value that contains itself in a way that pickle cannot say");
  }
  ++open.depth;
  open.num_memo_entries = writer_.num_memo_entries();
}

// The value is on the stack. Whether it is the first of its node; of others
// the first takes the place.
bool Pickler::Finish(NodeId id) {
  const auto open = open_.find(id);
  if (--open->second.depth == 0) {
    open_.erase(open);
  }
  const auto known = memo_.find(id);
  if (known == memo_.end()) {
    Remember(id);
    return true;
  }
  writer_.Op(opcode::kPop);
  writer_.Get(known->second);
  return false;
}

void Pickler::SaveTuple(NodeId id) {
  const std::span<const NodeId> items = tree_.Items(id);
  if (items.empty()) {
    return writer_.Op(opcode::kEmptyTuple);
  }
  Enter(id);
  if (items.size() > 3) {
    writer_.Op(opcode::kMark);
  }
  Push(Step::kEndTuple, id);
  PushAll(items);
}

void Pickler::EndTuple(NodeId id) {
  WriteTuple(tree_.Items(id).size());
  Finish(id);
}

void Pickler::WriteTuple(size_t num_items) {
  constexpr char kBySize[] = {opcode::kEmptyTuple, opcode::kTuple1,
                              opcode::kTuple2, opcode::kTuple3};
  writer_.Op(num_items > 3 ? opcode::kTuple : kBySize[num_items]);
}

// torch.Size((...))
void Pickler::SaveSize(NodeId id) {
  const Global& cls = *ClassOf(id);
  writer_.Global(cls.module, cls.name);
  Enter(id);
  const std::span<const NodeId> items = tree_.Items(id);
  if (items.size() > 3) {
    writer_.Op(opcode::kMark);
  }
  Push(Step::kEndSize, id);
  PushAll(items);
}

void Pickler::EndSize(NodeId id) {
  WriteTuple(tree_.Items(id).size());
  if (!tree_.Items(id).empty()) {
    writer_.Put();
  }
  WriteCall();
  Finish(id);
}

// Of the global and the one argument on the stack.
void Pickler::WriteCall() {
  writer_.Op(opcode::kTuple1);
  writer_.Put();
  writer_.Op(opcode::kReduce);
}

// Protocol 2 has no sets: set([items]).
void Pickler::SaveSet(NodeId id) {
  Enter(id);
  writer_.Global("__builtin__",
                 ClassOf(id) == nullptr ? "set" : ClassOf(id)->name);
  writer_.Op(opcode::kEmptyList);
  writer_.Put();
  Push(Step::kEndSet, id);
  Push(Step::kListItems, id);
}

void Pickler::EndSet(NodeId id) {
  WriteCall();
  Finish(id);
}

// Protocol 2 has no bytes: _codecs.encode(text, "latin1").
void Pickler::SaveBytes(NodeId id) {
  const std::string& bytes = tree_.Text(id);
  const bool is_array = ClassOf(id) != nullptr;
  if (bytes.empty() && !is_array) {
    writer_.Global("__builtin__", "bytes");
    writer_.Op(opcode::kEmptyTuple);
  } else {
    writer_.Global(is_array ? "__builtin__" : "_codecs",
                   is_array ? "bytearray" : "encode");
    writer_.Str(DecodeLatin1(bytes));
    writer_.Put();
    writer_.CommonStr(is_array ? "latin-1" : "latin1");
    writer_.Op(opcode::kTuple2);
    writer_.Put();
  }
  writer_.Op(opcode::kReduce);
  Remember(id);
}

void Pickler::SaveReduce(NodeId id) {
  Enter(id);
  const Parts& parts = *tree_.PartsOf(id);
  writer_.Global(ClassOf(id)->module, ClassOf(id)->name);
  Push(Step::kEndReduce, id);
  if (parts.kwargs != kNoNode) {
    Push(Step::kSave, parts.kwargs);
  }
  if (parts.args == kNoNode) {
    PushOp(opcode::kEmptyTuple);
  } else {
    Push(Step::kSave, parts.args);
  }
}

void Pickler::EndReduce(NodeId id) {
  const Construction construction = tree_.nodes[id].construction;
  writer_.Op(construction == Construction::kNewObj     ? opcode::kNewObj
             : construction == Construction::kNewObjEx ? opcode::kNewObjEx
                                                       : opcode::kReduce);
  if (Finish(id)) {
    PushItemSteps(id);
  }
}

// List items, dict items, state, in this order.
void Pickler::PushItemSteps(NodeId id) {
  const Parts& parts = *tree_.PartsOf(id);
  if (parts.state != kNoNode) {
    PushOp(opcode::kBuild);
    Push(Step::kSave, parts.state);
  }
  Push(Step::kDictItems, id);
  if (parts.list_items != kNoNode) {
    Push(Step::kObjectItems, id);
  }
}

// ("storage", class, key, location, number of elements)
void Pickler::SaveStorage(NodeId id) {
  const auto index = static_cast<uint32_t>(tree_.nodes[id].value);
  const StorageInfo& storage = tree_.storages[index];
  const Global& cls = tree_.globals[storage.cls];
  const auto [key, is_new] =
      storage_keys_.try_emplace(index, static_cast<uint32_t>(storages_.size()));
  if (is_new) {
    storages_.push_back(index);
  }
  writer_.Op(opcode::kMark);
  writer_.CommonStr("storage");
  writer_.Global(cls.module, cls.name);
  writer_.CommonStr(StrCat(key->second));
  writer_.CommonStr(storage.location);
  writer_.Int(storage.num_elements);
  writer_.Op(opcode::kTuple);
  writer_.Put();
  writer_.Op(opcode::kPersistentId);
}

}  // namespace

Pickled Pickle(const ValueTree& tree) { return Pickler(tree).Run(); }

}  // namespace muonstore::torchfile
