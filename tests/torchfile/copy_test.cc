// Every torch file that can be read is copied and compared.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/torchfile/torch_file.h"
#include "formats/torchfile/torch_file_writer.h"
#include "formats/torchfile/tree_copier.h"
#include "tests/testutil/fixtures.h"
#include "tests/torchfile/expect_error.h"
#include "tests/torchfile/memory_file_system.h"
#include "tests/torchfile/memory_writable_file.h"
#include "tests/torchfile/pickle_builder.h"
#include "tests/torchfile/same_values.h"
#include "tests/torchfile/writing.h"

namespace muonstore::torchfile {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> TorchFiles(const char* family) {
  std::vector<fs::path> files;
  for (const fs::path& root : testutil::FixtureRoots()) {
    if (!fs::exists(root / family)) {
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(root / family)) {
      if (entry.path().extension() == ".pt") {
        files.push_back(entry.path());
      }
    }
  }
  return files;
}

std::shared_ptr<const TorchFile> OpenIfSound(const fs::path& path) {
  try {
    auto file = TorchFile::Open(PosixFileSystem(), path.string());
    return file->Verify().empty() ? file : nullptr;
  } catch (const Error&) {
    return nullptr;
  }
}

void ExpectEqualCopy(const std::shared_ptr<const TorchFile>& file) {
  const std::string bytes = CopyFile(file);
  const auto copy = OpenBytes(bytes);
  EXPECT_TRUE(copy->Verify().empty());
  const Comparison same = Compare(file->root(), copy->root());
  EXPECT_EQ(same.difference, "");
  for (const auto& [from, to] : same.storages) {
    EXPECT_EQ(StorageBytesOf(*file, from), StorageBytesOf(*copy, to));
  }
  EXPECT_EQ(CopyFile(copy), bytes);
}

TEST(Copy, EveryReadableTorchFileIsEqualAfterwards) {
  size_t num_copied = 0;
  for (const fs::path& path : TorchFiles("torchfiles")) {
    SCOPED_TRACE(path.string());
    const auto file = OpenIfSound(path);
    if (file != nullptr) {
      ExpectEqualCopy(file);
      ++num_copied;
    }
  }
  EXPECT_GE(num_copied, 40u);
}

// Rank files of checkpoints: objects, views of one storage, client state.
TEST(Copy, EveryCheckpointFileIsEqualAfterwards) {
  size_t num_copied = 0;
  for (const fs::path& path : TorchFiles("deepspeed")) {
    SCOPED_TRACE(path.string());
    const auto file = OpenIfSound(path);
    ASSERT_NE(file, nullptr);
    ExpectEqualCopy(file);
    ++num_copied;
  }
  EXPECT_GE(num_copied, 60u);
}

std::string TwoTensors() {
  pickle::StorageId second;
  second.key = "1";
  const std::string other =
      pickle::Tensor({.storage = pickle::Storage(second)});
  return TorchZip(
      pickle::Whole(pickle::Dict(
          {{"a", pickle::Tensor()}, {"b", other}, {"c", pickle::Tensor()}})),
      {pickle::Floats(6), pickle::Floats(6, 100)});
}

TEST(Copy, TheHookReplacesANodeEverywhere) {
  const auto file = OpenBytes(TwoTensors());
  Draft draft;
  const NodeId root =
      TreeCopier(draft, file, [&](const Value& value) -> std::optional<NodeId> {
        if (value.is(ValueType::kTensor) && value.AsTensor().storage == 0) {
          return draft.Str("gone");
        }
        return std::nullopt;
      }).Copy(file->root());
  draft.set_root(root);
  const auto copy = OpenBytes(WriteDraft(draft));
  EXPECT_EQ(copy->root().Get("a").AsString(), "gone");
  EXPECT_EQ(copy->root().Get("c").AsString(), "gone");
  EXPECT_EQ(ReadAll(*copy, copy->root().Get("b").AsTensor()),
            pickle::Floats(6, 100));
  // The storage that only they used is not written.
  EXPECT_EQ(copy->tree().storages.size(), 1u);
}

TEST(Copy, PartsOfSeveralFilesMeetInOneDraft) {
  const auto one = OpenBytes(TwoTensors());
  const auto other = OpenBytes(TwoTensors());
  Draft draft;
  TreeCopier copier(draft, one);
  const std::vector<NodeId> items = {
      copier.Copy(one->root().Get("a")),
      TreeCopier(draft, other).Copy(other->root().Get("b")),
      copier.Copy(one->root().Get("a"))};
  draft.set_root(draft.List(items));
  const auto copy = OpenBytes(WriteDraft(draft));
  EXPECT_EQ(ReadAll(*copy, copy->root().at(0).AsTensor()), pickle::Floats(6));
  EXPECT_EQ(ReadAll(*copy, copy->root().at(1).AsTensor()),
            pickle::Floats(6, 100));
  EXPECT_EQ(copy->root().at(0).id(), copy->root().at(2).id());
}

TEST(Copy, ADamagedStorageIsAnErrorThatNamesTheSource) {
  std::string bytes = TwoTensors();
  const size_t at = bytes.find(pickle::Floats(6, 100));
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  const auto file = OpenBytes(bytes);
  EXPECT_ERROR(CopyFile(file), ErrorCode::kDataLoss, "data/1 is damaged");
}

// A storage of many blocks: no CRC of a whole record is read at once.
TEST(Copy, ADamagedLargeStorageIsAnError) {
  Draft draft;
  const NodeId storage = draft.Storage(
      {.dtype = DType::kU8, .num_elements = (int64_t{3} << 20) + 5});
  draft.set_root(draft.Tensor({.storage = storage,
                               .dtype = DType::kU8,
                               .shape = Shape({5}),
                               .storage_offset = int64_t{3} << 20}));
  std::string bytes = WriteDraft(draft);
  EXPECT_EQ(CopyFile(OpenBytes(bytes)), bytes);
  const size_t middle = bytes.size() / 2;
  bytes[middle] = static_cast<char>(bytes[middle] ^ 4);
  EXPECT_ERROR(CopyFile(OpenBytes(bytes)), ErrorCode::kDataLoss,
               "data/0 is damaged");
}

TEST(Copy, MemoryStaysBelowABlockPerWrite) {
  Draft draft;
  const NodeId storage =
      draft.Storage({.dtype = DType::kF64, .num_elements = 1 << 20});
  draft.set_root(draft.Tensor(
      {.storage = storage, .dtype = DType::kF64, .shape = Shape({1 << 20})}));
  const auto file = OpenBytes(WriteDraft(draft));
  Draft copy;
  copy.set_root(TreeCopier(copy, file).Copy(file->root()));
  MemoryWritableFile out;
  TorchFileWriter writer(out, TorchFilePlan(copy, "archive"));
  writer.Finish();
  EXPECT_LE(out.largest_write, uint64_t{1} << 20);
}

}  // namespace
}  // namespace muonstore::torchfile
