// Drafts written and read back: by our reader, and byte by byte.

#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "formats/torchfile/torch_file_writer.h"
#include "formats/torchfile/tree_copier.h"
#include "src/base/str.h"
#include "tests/torchfile/expect_error.h"
#include "tests/torchfile/memory_file_system.h"
#include "tests/torchfile/memory_writable_file.h"
#include "tests/torchfile/random_draft.h"
#include "tests/torchfile/same_values.h"
#include "tests/torchfile/writing.h"
#include "tests/torchfile/zip_builder.h"

namespace muonstore::torchfile {
namespace {

void ExpectSame(const Draft& draft, const TorchFile& file) {
  EXPECT_TRUE(file.Verify().empty());
  const Comparison same = Compare(draft.value(draft.tree().root), file.root());
  EXPECT_EQ(same.difference, "");
  for (const auto& [from, to] : same.storages) {
    const uint64_t size = file.tree().storages[to].size_bytes;
    EXPECT_EQ(StorageBytesOf(file, to), Pattern(from, size));
  }
}

TEST(Writer, RandomDraftsComeBackAndCopyToTheSameBytes) {
  for (uint32_t seed = 0; seed < 300 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const auto draft = RandomDraft(seed);
    const std::string bytes = WriteDraft(*draft);
    const auto file = OpenBytes(bytes);
    ExpectSame(*draft, *file);
    EXPECT_EQ(CopyFile(file), bytes);
  }
}

TEST(Writer, ThePlanKnowsOffsetsAndSize) {
  Draft draft;
  const NodeId storage = draft.Storage({.num_elements = 6});
  draft.set_root(draft.Tensor({.storage = storage, .shape = Shape({2, 3})}));
  const TorchFilePlan plan(draft, "name");
  ASSERT_EQ(plan.segments().size(), 1u);
  EXPECT_EQ(plan.segments()[0].size_bytes, 24u);
  EXPECT_EQ(plan.segments()[0].offset_bytes % 64, 0u);
  const std::string bytes = WriteDraft(draft, "name");
  EXPECT_EQ(bytes.size(), plan.file_size_bytes());
  EXPECT_EQ(bytes.substr(plan.segments()[0].offset_bytes, 24), Pattern(0, 24));
  EXPECT_EQ(OpenBytes(bytes)->archive_root(), "name");
}

TEST(Writer, EveryRecordIsAligned) {
  const auto file = OpenBytes(WriteDraft(*RandomDraft(3), "name"));
  for (const RecordInfo& record : file->records()) {
    EXPECT_EQ(record.offset_bytes % 64, 0u) << record.name;
  }
}

// {"w": tensor} as torch 2.15 writes it, opcode by opcode.
TEST(Writer, ThePickleIsTorchs) {
  Draft draft;
  const NodeId storage = draft.Storage({.num_elements = 6});
  const NodeId root = draft.Dict();
  draft.SetItem(root, "w",
                draft.Tensor({.storage = storage, .shape = Shape({2, 3})}));
  draft.set_root(root);
  const std::string expected =
      std::string("\x80\x02}q\0X\1\0\0\0wq\1", 13) +
      "ctorch._utils\n_rebuild_tensor_v2\nq\2" +
      std::string("((X\7\0\0\0storageq\3", 16) + "ctorch\nFloatStorage\nq\4" +
      std::string("X\1\0\0\0000q\5X\3\0\0\0cpuq\6", 18) +
      std::string("K\6tq\7QK\0K\2K\3\x86q\x08K\3K\1\x86q\t\x89", 23) +
      std::string("ccollections\nOrderedDict\nq\n)Rq\vtq\fRq\rs.");
  const std::string bytes = WriteDraft(draft);
  EXPECT_NE(bytes.find(expected), std::string::npos);
}

TEST(Writer, RecordsComeInTorchsOrder) {
  Draft draft;
  std::vector<NodeId> tensors;
  for (int i = 0; i < 3; ++i) {
    const NodeId storage = draft.Storage({.num_elements = 2});
    tensors.push_back(draft.Tensor({.storage = storage, .shape = Shape({2})}));
  }
  // The keys follow the first occurrence, not the declaration.
  draft.set_root(draft.List(std::array{tensors[2], tensors[0], tensors[1]}));
  const auto file = OpenBytes(WriteDraft(draft));
  std::vector<std::string> names;
  for (const RecordInfo& record : file->records()) {
    names.push_back(record.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{
                       "data.pkl", ".format_version", ".storage_alignment",
                       "byteorder", "data/0", "data/1", "data/2", "version",
                       ".data/serialization_id"}));
  EXPECT_EQ(ReadAll(*file, file->root().at(0).AsTensor()), Pattern(2, 8));
}

TEST(Writer, TheSerializationIdTellsContentsApart) {
  const auto id_of = [](uint32_t seed) {
    const std::string bytes = WriteDraft(*RandomDraft(seed));
    const size_t name = bytes.find(".data/serialization_id");
    const size_t end = bytes.find("PK\7\b", name);
    return bytes.substr(end - 40, 40);
  };
  EXPECT_EQ(id_of(1), id_of(1));
  EXPECT_NE(id_of(1), id_of(2));
  EXPECT_EQ(id_of(1).find_first_not_of("0123456789"), std::string::npos);
}

TEST(Writer, DeepTreesNeedNoStack) {
  Draft draft;
  NodeId value = draft.List();
  constexpr int kDepth = 300000;
  for (int i = 0; i < kDepth; ++i) {
    value = i % 3 == 0 ? draft.Tuple(std::array{value})
            : i % 3 == 1
                ? draft.List(std::array{value})
                : draft.Object({.module = "m", .name = "C", .args = {value}});
  }
  draft.set_root(value);
  const auto file = OpenBytes(WriteDraft(draft));
  EXPECT_EQ(Compare(draft.value(value), file->root()).difference, "");
  EXPECT_EQ(CopyFile(file), WriteDraft(draft));
}

// list L, tuple T = (L, L2), both lists hold T.
TEST(Writer, ATupleWithinItselfKeepsItsIdentity) {
  Draft draft;
  const NodeId first = draft.List();
  const NodeId second = draft.List();
  const NodeId tuple =
      draft.Tuple(std::array{first, second, draft.Int(3), draft.Int(4)});
  draft.Append(first, tuple);
  draft.Append(second, tuple);
  draft.set_root(tuple);
  const auto file = OpenBytes(WriteDraft(draft));
  EXPECT_EQ(Compare(draft.value(tuple), file->root()).difference, "");
  EXPECT_EQ(file->root().at(1).at(0).id(), file->root().id());
}

TEST(Writer, ACycleThatPickleCannotSayIsAnError) {
  Draft draft;
  const NodeId set = draft.Set({});
  const NodeId object =
      draft.Object({.module = "m", .name = "C", .args = {set}});
  draft.Append(set, object);
  draft.set_root(object);
  EXPECT_ERROR(TorchFilePlan(draft, "a"), ErrorCode::kUnsupported,
               "contains itself");
}

TEST(Writer, AGlobalWithALineBreakIsAnError) {
  Draft draft;
  draft.set_root(draft.Global("m", "C\nos\nsystem"));
  EXPECT_ERROR(TorchFilePlan(draft, "a"), ErrorCode::kUnsupported,
               "line break");
}

TEST(Writer, ARootFolderIsOneName) {
  Draft draft;
  draft.set_root(draft.None());
  for (const char* root : {"a/b", ""}) {
    EXPECT_ERROR(TorchFilePlan(draft, root), ErrorCode::kInvalidArgument,
                 "one name");
  }
}

TEST(Writer, ATensorMustFitItsStorage) {
  Draft draft;
  const NodeId storage = draft.Storage({.num_elements = 6});
  EXPECT_ERROR(draft.Tensor({.storage = storage, .shape = Shape({7})}),
               ErrorCode::kDataLoss, "leaves its storage");
}

TEST(Writer, ATensorHasItsStoragesDType) {
  Draft draft;
  const NodeId storage = draft.Storage({.num_elements = 6});
  EXPECT_ERROR(
      draft.Tensor(
          {.storage = storage, .dtype = DType::kI32, .shape = Shape({2})}),
      ErrorCode::kInvalidArgument, "another dtype");
}

TEST(Writer, ATypeThatTorchKeepsUntypedIsToldSo) {
  Draft draft;
  EXPECT_ERROR(draft.Storage({.dtype = DType::kF8E5M2, .num_elements = 1}),
               ErrorCode::kInvalidArgument, "untyped");
}

struct TwoStorages {
  Draft draft;
  NodeId first = draft.Storage({.dtype = DType::kU8, .num_elements = 4});
  NodeId second = draft.Storage({.dtype = DType::kU8, .num_elements = 4});

  TwoStorages() {
    const auto tensor = [&](NodeId storage) {
      return draft.Tensor(
          {.storage = storage, .dtype = DType::kU8, .shape = Shape({4})});
    };
    draft.set_root(draft.List(std::array{tensor(first), tensor(second)}));
  }
};

class OutOfOrder : public testing::Test {
 protected:
  TwoStorages two_;
  MemoryWritableFile file_;
  std::vector<std::byte> four_ = std::vector<std::byte>(4);
  TorchFileWriter writer_{file_, TorchFilePlan(two_.draft, "a")};
};

TEST_F(OutOfOrder, TheSecondStorageFirst) {
  EXPECT_ERROR(writer_.WriteStorage(1, four_), ErrorCode::kInternal,
               "out of order");
}

TEST_F(OutOfOrder, MoreBytesThanTheStorageHas) {
  EXPECT_ERROR(writer_.WriteStorage(0, std::vector<std::byte>(5)),
               ErrorCode::kInternal, "more data");
}

TEST_F(OutOfOrder, AStorageThatIsNotFull) {
  writer_.WriteStorage(0, four_);
  EXPECT_ERROR(writer_.Finish(), ErrorCode::kInternal, "not filled");
  writer_.WriteStorage(1, four_);
  writer_.Finish();
  EXPECT_TRUE(OpenBytes(file_.bytes)->Verify().empty());
}

TEST_F(OutOfOrder, BytesBehindTheLastStorage) {
  writer_.WriteStorage(0, four_);
  writer_.WriteStorage(1, four_);
  EXPECT_ERROR(writer_.WriteStorage(1, four_), ErrorCode::kInternal,
               "out of order");
}

TEST(Writer, AWriteThatFailsIsReported) {
  TwoStorages two;
  MemoryWritableFile file;
  file.fail_at = 0;
  TorchFileWriter writer(file, TorchFilePlan(two.draft, "a"));
  writer.WriteStorage(0, std::vector<std::byte>(4));
  writer.WriteStorage(1, std::vector<std::byte>(4));
  EXPECT_ERROR(writer.Finish(), ErrorCode::kResourceExhausted, "no space");
}

TEST(Writer, ManyStoragesAreWrittenInFewCalls) {
  Draft draft;
  const NodeId list = draft.List();
  for (int i = 0; i < 3000; ++i) {
    const NodeId storage = draft.Storage({.num_elements = 1});
    draft.Append(list, draft.Tensor({.storage = storage, .shape = Shape({1})}));
  }
  draft.set_root(list);
  MemoryWritableFile file;
  TorchFilePlan plan(draft, "a");
  const uint64_t size = plan.file_size_bytes();
  TorchFileWriter writer(file, std::move(plan));
  for (uint32_t i = 0; i < 3000; ++i) {
    writer.WriteStorage(i, std::as_bytes(std::span(&i, 1)));
  }
  writer.Finish();
  EXPECT_EQ(file.bytes.size(), size);
  EXPECT_LE(file.num_writes, 3);
  EXPECT_TRUE(OpenBytes(std::move(file.bytes))->Verify().empty());
}

}  // namespace
}  // namespace muonstore::torchfile
