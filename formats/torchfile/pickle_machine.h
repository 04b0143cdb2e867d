// The stack machine that reads one pickle into a ValueTree.
//
// What: all opcodes of protocols 0 to 5 except the extension registry and
//   out-of-band buffers, which torch.save never writes. No recursion over the
//   input: any nesting depth is fine.
// Ownership: borrows reader, builder and storages for the run.
// Threads: one thread.
// Failures: Error with the offset of the opcode: kDataLoss for a malformed
//   pickle, kUnsupported for what is refused (globals_policy.h),
//   kResourceExhausted from the budget.

#ifndef MUONSTORE_FORMATS_TORCHFILE_PICKLE_MACHINE_H_
#define MUONSTORE_FORMATS_TORCHFILE_PICKLE_MACHINE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/torchfile/object_builder.h"
#include "formats/torchfile/pickle_memo.h"
#include "formats/torchfile/pickle_reader.h"
#include "formats/torchfile/tree_builder.h"

namespace muonstore::torchfile {

class PickleMachine {
 public:
  // Without `storages`, persistent ids are errors.
  PickleMachine(PickleReader& reader, TreeBuilder& builder,
                StorageTable* storages);

  // Reads up to and including STOP; sets the tree's root and protocol.
  void Run();

 private:
  friend struct OpcodeTable;

  void Execute(uint8_t opcode);
  [[noreturn]] void FailOpcode(std::string message) const;

  // The stack above the last mark.
  void Push(NodeId id);
  NodeId Pop();
  NodeId Top();
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  // Removes the last mark and gives the items above it; valid until Push.
  std::span<const NodeId> PopToMark();

  // Opcodes, in groups; pickle_scalars.cc has those that only push a scalar.
  void Proto();
  void Frame();
  void Mark();
  void PopTop();
  void PopMark();
  void Dup();
  template <typename T>
  void BinGet();
  template <typename T>
  void BinPut();
  void TextGet();
  void TextPut();
  void Memoize();
  void GetFromMemo(uint64_t index);
  void PutIntoMemo(uint64_t index);

  void PushNone();
  template <bool kValue>
  void PushBool();
  template <typename T>
  void BinInt();
  void TextInt();
  void TextLong();
  template <typename Length>
  void BinLong();
  void TextFloat();
  void BinFloat();
  template <typename Length>
  void BinUnicode();
  void TextUnicode();
  template <typename Length>
  void BinString();
  void TextString();
  template <typename Length>
  void BinBytes();
  void ByteArray();
  void PushString(std::string bytes);
  void PushDecimal(std::string_view digits);
  uint64_t TextIndex();
  template <typename Length>
  uint64_t ReadLength();

  template <ValueType kType>
  void EmptyContainer();
  void EmptyTuple();
  template <ValueType kType>
  void ContainerFromMark();
  void FrozenSet();
  template <size_t kSize>
  void TupleOfSize();
  void AppendOne();
  void Appends();
  void SetItem();
  void SetItems();
  void AddItems();

  void GlobalName();
  void StackGlobal();
  void Reduce();
  void NewObj();
  void NewObjEx();
  void Inst();
  void Obj();
  void Build();
  void TextPersistentId();
  void PersistentId();
  void Extension();
  void Buffer();
  NodeId GlobalFromLines();

  PickleReader& reader_;
  TreeBuilder& builder_;
  ObjectBuilder objects_;
  PickleMemo memo_;
  uint64_t begin_bytes_ = 0;  // Of the pickle, in the file.
  std::vector<NodeId> stack_;
  std::vector<size_t> marks_;
  std::vector<NodeId> scratch_;  // Items of PopToMark.
};

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_PICKLE_MACHINE_H_
