// The opcodes that make and fill containers and objects.

#include <array>
#include <utility>

#include "formats/torchfile/pickle_machine.h"
#include "formats/torchfile/text_codec.h"
#include "muonstore/error.h"

namespace muonstore::torchfile {

template <ValueType kType>
void PickleMachine::EmptyContainer() {
  Push(builder_.Container(kType));
}

void PickleMachine::EmptyTuple() { Push(builder_.Tuple({})); }

template <ValueType kType>
void PickleMachine::ContainerFromMark() {
  const std::span<const NodeId> items = PopToMark();
  if constexpr (kType == ValueType::kTuple) {
    Push(builder_.Tuple(items));
  } else {
    const NodeId id = builder_.Container(kType);
    if constexpr (kType == ValueType::kDict) {
      objects_.SetItems(id, items);
    } else {
      builder_.AppendItems(id, items);
    }
    Push(id);
  }
}

void PickleMachine::FrozenSet() {
  ContainerFromMark<ValueType::kSet>();
  const NodeId cls = builder_.GlobalNamed("builtins", "frozenset");
  builder_.SetClass(Top(),
                    static_cast<uint32_t>(builder_.tree().nodes[cls].value),
                    Construction::kNone);
}

template <size_t kSize>
void PickleMachine::TupleOfSize() {
  std::array<NodeId, kSize> items{};
  for (size_t i = kSize; i-- > 0;) {
    items[i] = Pop();
  }
  Push(builder_.Tuple(items));
}

void PickleMachine::AppendOne() {
  const std::array<NodeId, 1> item = {Pop()};
  objects_.Append(Top(), item);
}

void PickleMachine::Appends() {
  const std::span<const NodeId> items = PopToMark();
  objects_.Append(Top(), items);
}

void PickleMachine::SetItem() {
  const NodeId value = Pop();
  const std::array<NodeId, 2> entry = {Pop(), value};
  objects_.SetItems(Top(), entry);
}

void PickleMachine::SetItems() {
  const std::span<const NodeId> items = PopToMark();
  objects_.SetItems(Top(), items);
}

void PickleMachine::AddItems() {
  const std::span<const NodeId> items = PopToMark();
  objects_.AddItems(Top(), items);
}

NodeId PickleMachine::GlobalFromLines() {
  std::string module(reader_.ReadLine());
  std::string name(reader_.ReadLine());
  if (!IsUtf8(module) || !IsUtf8(name)) {
    FailOpcode("a global's name is not UTF-8");
  }
  return builder_.GlobalNamed(std::move(module), std::move(name));
}

void PickleMachine::GlobalName() { Push(GlobalFromLines()); }

void PickleMachine::StackGlobal() {
  const Value name(builder_.tree(), Pop());
  const Value module(builder_.tree(), Pop());
  Push(builder_.GlobalNamed(module.AsString(), name.AsString()));
}

void PickleMachine::Reduce() {
  const NodeId args = Pop();
  const NodeId callee = Pop();
  Push(objects_.Call(callee, args, Construction::kReduce));
}

void PickleMachine::NewObj() {
  const NodeId args = Pop();
  const NodeId cls = Pop();
  Push(objects_.Call(cls, args, Construction::kNewObj));
}

void PickleMachine::NewObjEx() {
  const NodeId kwargs = Pop();
  const NodeId args = Pop();
  const NodeId cls = Pop();
  if (builder_.tree().nodes[kwargs].type != ValueType::kDict) {
    FailOpcode("keyword arguments are no dict");
  }
  Push(objects_.Call(cls, args, Construction::kNewObjEx, kwargs));
}

void PickleMachine::Inst() {
  const NodeId cls = GlobalFromLines();
  const NodeId args = builder_.Tuple(PopToMark());
  Push(objects_.Call(cls, args, Construction::kReduce));
}

void PickleMachine::Obj() {
  const std::span<const NodeId> items = PopToMark();
  if (items.empty()) {
    FailOpcode("OBJ without a class");
  }
  const NodeId cls = items[0];
  const NodeId args = builder_.Tuple(items.subspan(1));
  Push(objects_.Call(cls, args, Construction::kReduce));
}

void PickleMachine::Build() {
  const NodeId state = Pop();
  objects_.Build(Top(), state);
}

void PickleMachine::TextPersistentId() {
  FailOpcode("a persistent id that is a text, not a tuple");
}

void PickleMachine::PersistentId() {
  const NodeId id = Pop();
  Push(objects_.Persistent(id));
}

void PickleMachine::Extension() {
  throw Error(ErrorCode::kUnsupported,
              "the pickle uses the extension registry, which torch.save does "
              "not");
}

void PickleMachine::Buffer() {
  throw Error(ErrorCode::kUnsupported,
              "the pickle refers to buffers outside of it, which torch.save "
              "does not");
}

template void PickleMachine::EmptyContainer<ValueType::kList>();
template void PickleMachine::EmptyContainer<ValueType::kDict>();
template void PickleMachine::EmptyContainer<ValueType::kSet>();
template void PickleMachine::ContainerFromMark<ValueType::kList>();
template void PickleMachine::ContainerFromMark<ValueType::kDict>();
template void PickleMachine::ContainerFromMark<ValueType::kTuple>();
template void PickleMachine::ContainerFromMark<ValueType::kSet>();
template void PickleMachine::TupleOfSize<1>();
template void PickleMachine::TupleOfSize<2>();
template void PickleMachine::TupleOfSize<3>();

}  // namespace muonstore::torchfile
