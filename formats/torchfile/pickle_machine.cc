#include "formats/torchfile/pickle_machine.h"

#include <array>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

constexpr uint8_t kStop = '.';
constexpr int kMaxProtocol = 5;

}  // namespace

// Opcode -> handler, as in CPython's pickletools. Unknown opcodes have none.
struct OpcodeTable {
  using Handler = void (PickleMachine::*)();
  using M = PickleMachine;

  static constexpr std::array<Handler, 256> Make() {
    std::array<Handler, 256> table{};
    for (const auto& [opcode, handler] : kStackOpcodes) {
      table[opcode] = handler;
    }
    for (const auto& [opcode, handler] : kScalarOpcodes) {
      table[opcode] = handler;
    }
    for (const auto& [opcode, handler] : kObjectOpcodes) {
      table[opcode] = handler;
    }
    return table;
  }

  struct Entry {
    uint8_t opcode;
    Handler handler;
  };
  static constexpr Entry kStackOpcodes[] = {
      {0x80, &M::Proto},
      {0x95, &M::Frame},
      {'(', &M::Mark},
      {'0', &M::PopTop},
      {'1', &M::PopMark},
      {'2', &M::Dup},
      {'h', &M::BinGet<uint8_t>},
      {'j', &M::BinGet<uint32_t>},
      {'g', &M::TextGet},
      {'q', &M::BinPut<uint8_t>},
      {'r', &M::BinPut<uint32_t>},
      {'p', &M::TextPut},
      {0x94, &M::Memoize},
  };
  static constexpr Entry kScalarOpcodes[] = {
      {'N', &M::PushNone},
      {0x88, &M::PushBool<true>},
      {0x89, &M::PushBool<false>},
      {'J', &M::BinInt<int32_t>},
      {'K', &M::BinInt<uint8_t>},
      {'M', &M::BinInt<uint16_t>},
      {'I', &M::TextInt},
      {'L', &M::TextLong},
      {0x8a, &M::BinLong<uint8_t>},
      {0x8b, &M::BinLong<int32_t>},
      {'F', &M::TextFloat},
      {'G', &M::BinFloat},
      {'V', &M::TextUnicode},
      {'X', &M::BinUnicode<uint32_t>},
      {0x8c, &M::BinUnicode<uint8_t>},
      {0x8d, &M::BinUnicode<uint64_t>},
      {'S', &M::TextString},
      {'T', &M::BinString<int32_t>},
      {'U', &M::BinString<uint8_t>},
      {'B', &M::BinBytes<uint32_t>},
      {'C', &M::BinBytes<uint8_t>},
      {0x8e, &M::BinBytes<uint64_t>},
      {0x96, &M::ByteArray},
  };
  static constexpr Entry kObjectOpcodes[] = {
      {']', &M::EmptyContainer<ValueType::kList>},
      {'}', &M::EmptyContainer<ValueType::kDict>},
      {0x8f, &M::EmptyContainer<ValueType::kSet>},
      {')', &M::EmptyTuple},
      {'l', &M::ContainerFromMark<ValueType::kList>},
      {'d', &M::ContainerFromMark<ValueType::kDict>},
      {'t', &M::ContainerFromMark<ValueType::kTuple>},
      {0x91, &M::FrozenSet},
      {0x85, &M::TupleOfSize<1>},
      {0x86, &M::TupleOfSize<2>},
      {0x87, &M::TupleOfSize<3>},
      {'a', &M::AppendOne},
      {'e', &M::Appends},
      {'s', &M::SetItem},
      {'u', &M::SetItems},
      {0x90, &M::AddItems},
      {'c', &M::GlobalName},
      {0x93, &M::StackGlobal},
      {'R', &M::Reduce},
      {0x81, &M::NewObj},
      {0x92, &M::NewObjEx},
      {'i', &M::Inst},
      {'o', &M::Obj},
      {'b', &M::Build},
      {'P', &M::TextPersistentId},
      {'Q', &M::PersistentId},
      {0x82, &M::Extension},
      {0x83, &M::Extension},
      {0x84, &M::Extension},
      {0x97, &M::Buffer},
      {0x98, &M::Buffer},
  };
};

PickleMachine::PickleMachine(PickleReader& reader, TreeBuilder& builder,
                             StorageTable* storages)
    : reader_(reader),
      builder_(builder),
      objects_(builder, storages),
      memo_(builder.budget()) {}

void PickleMachine::Run() {
  uint64_t opcode_offset = reader_.offset_bytes();
  begin_bytes_ = opcode_offset;
  try {
    while (true) {
      opcode_offset = reader_.offset_bytes();
      const uint8_t opcode = reader_.ReadByte();
      if (opcode == kStop) {
        break;
      }
      Execute(opcode);
    }
    const NodeId root = Pop();
    if (!stack_.empty() || !marks_.empty()) {
      FailOpcode("values are left on the stack at STOP");
    }
    builder_.tree().root = root;
  } catch (const Error& e) {
    if (e.place().offset_bytes.has_value()) {
      throw;
    }
    ErrorPlace place = e.place();
    place.offset_bytes = opcode_offset;
    throw Error(e.code(), e.message(), std::move(place));
  }
}

void PickleMachine::Execute(uint8_t opcode) {
  static constexpr std::array<OpcodeTable::Handler, 256> kTable =
      OpcodeTable::Make();
  const OpcodeTable::Handler handler = kTable[opcode];
  if (handler == nullptr) {
    FailOpcode(StrCat("unknown pickle opcode ", opcode));
  }
  (this->*handler)();
}

void PickleMachine::FailOpcode(std::string message) const {
  throw Error(ErrorCode::kDataLoss, "malformed pickle: " + std::move(message));
}

void PickleMachine::Push(NodeId id) { builder_.budget().PushBack(stack_, id); }

NodeId PickleMachine::Top() {
  if (stack_.size() <= floor()) {
    FailOpcode("the stack is empty");
  }
  return stack_.back();
}

NodeId PickleMachine::Pop() {
  const NodeId id = Top();
  stack_.pop_back();
  return id;
}

std::span<const NodeId> PickleMachine::PopToMark() {
  if (marks_.empty()) {
    FailOpcode("no mark on the stack");
  }
  const std::span items = std::span(stack_).subspan(marks_.back());
  if (scratch_.capacity() < items.size()) {
    scratch_.clear();
    builder_.budget().Grow(scratch_, items.size());
  }
  scratch_.assign(items.begin(), items.end());
  stack_.resize(marks_.back());
  marks_.pop_back();
  return scratch_;
}

void PickleMachine::Proto() {
  const int protocol = reader_.ReadByte();
  if (protocol > kMaxProtocol) {
    FailOpcode(StrCat("protocol ", protocol, " is above ", kMaxProtocol));
  }
  builder_.tree().protocol = protocol;
}

// Frames only tell a reader how much to fetch at once.
void PickleMachine::Frame() { reader_.Require(reader_.ReadNumber<uint64_t>()); }

void PickleMachine::Mark() {
  builder_.budget().PushBack(marks_, stack_.size());
}

void PickleMachine::PopTop() {
  if (stack_.size() == floor() && !marks_.empty()) {
    marks_.pop_back();
    return;
  }
  Pop();
}

void PickleMachine::PopMark() { PopToMark(); }

void PickleMachine::Dup() { Push(Top()); }

void PickleMachine::GetFromMemo(uint64_t index) {
  const NodeId id = memo_.Get(index);
  if (id == kNoNode) {
    FailOpcode(StrCat("memo entry ", index, " was never set"));
  }
  Push(id);
}

// Every value that a pickler numbers takes a byte or more, so a number beyond
// the bytes read so far is damage.
void PickleMachine::PutIntoMemo(uint64_t index) {
  if (index > reader_.offset_bytes() - begin_bytes_) {
    FailOpcode(StrCat("memo entry ", index, " is beyond what was read"));
  }
  memo_.Put(index, Top());
}

template <typename T>
void PickleMachine::BinGet() {
  GetFromMemo(reader_.ReadNumber<T>());
}

template <typename T>
void PickleMachine::BinPut() {
  PutIntoMemo(reader_.ReadNumber<T>());
}

void PickleMachine::TextGet() { GetFromMemo(TextIndex()); }

void PickleMachine::TextPut() { PutIntoMemo(TextIndex()); }

void PickleMachine::Memoize() { memo_.Put(memo_.num_entries(), Top()); }

}  // namespace muonstore::torchfile
