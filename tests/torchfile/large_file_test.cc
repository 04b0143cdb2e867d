// Files beyond 4 GiB: ZIP64, on a file that keeps no zeros.

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/torchfile/torch_file_writer.h"
#include "tests/testutil/forwarding_file_system.h"
#include "tests/torchfile/memory_file_system.h"

namespace muonstore::torchfile {
namespace {

bool IsZero(std::span<const std::byte> data) {
  return data.empty() ||
         (data[0] == std::byte{} &&
          std::memcmp(data.data(), data.data() + 1, data.size() - 1) == 0);
}

// Keeps the writes that are not zero.
class SparseFile : public WritableFile {
 public:
  const std::string& path() const override { return path_; }
  void WriteAt(uint64_t offset_bytes,
               std::span<const std::byte> data) override {
    size_bytes = std::max(size_bytes, offset_bytes + data.size());
    if (!IsZero(data)) {
      pieces[offset_bytes].assign(data.begin(), data.end());
    }
  }
  void Sync() override {}
  void Close() override {}

  uint64_t size_bytes = 0;
  std::map<uint64_t, std::vector<std::byte>> pieces;

 private:
  std::string path_ = "sparse.pt";
};

class SparseReader : public RandomAccessFile {
 public:
  explicit SparseReader(const SparseFile& file) : file_(file) {}
  const std::string& path() const override { return file_.path(); }
  uint64_t size_bytes() const override { return file_.size_bytes; }
  void ReadAt(uint64_t offset_bytes, std::span<std::byte> out) override {
    std::fill(out.begin(), out.end(), std::byte{});
    for (const auto& [begin, piece] : file_.pieces) {
      const uint64_t from = std::max(begin, offset_bytes);
      const uint64_t to =
          std::min(begin + piece.size(), offset_bytes + out.size());
      if (from < to) {
        std::memcpy(out.data() + (from - offset_bytes),
                    piece.data() + (from - begin), to - from);
      }
    }
  }

 private:
  const SparseFile& file_;
};

class SparseFileSystem : public testutil::ForwardingFileSystem {
 public:
  explicit SparseFileSystem(const SparseFile& file)
      : ForwardingFileSystem(PosixFileSystem()), file_(file) {}
  std::unique_ptr<RandomAccessFile> OpenForRead(const std::string&) override {
    return std::make_unique<SparseReader>(file_);
  }

 private:
  const SparseFile& file_;
};

TEST(LargeFile, StoragesBeyond4GiBReadBack) {
  constexpr int64_t kLarge = (int64_t{4} << 30) + 24;
  Draft draft;
  const auto tensor = [&](int64_t size) {
    return draft.Tensor(
        {.storage = draft.Storage({.dtype = DType::kU8, .num_elements = size}),
         .dtype = DType::kU8,
         .shape = Shape({size})});
  };
  draft.set_root(draft.List(std::array{tensor(kLarge), tensor(3)}));
  SparseFile out;
  TorchFilePlan plan(draft, "archive");
  const uint64_t size = plan.file_size_bytes();
  TorchFileWriter writer(out, std::move(plan));
  const std::vector<std::byte> zeros(size_t{64} << 20);
  for (int64_t left = kLarge - 1; left > 0;) {
    const auto count = std::min<int64_t>(left, std::ssize(zeros));
    writer.WriteStorage(0, std::span(zeros).first(static_cast<size_t>(count)));
    left -= count;
  }
  writer.WriteStorage(0, std::vector(1, std::byte{77}));
  writer.WriteStorage(1, std::vector(3, std::byte{5}));
  writer.Finish();
  EXPECT_EQ(out.size_bytes, size);

  const auto file =
      TorchFile::Open(std::make_shared<SparseFileSystem>(out), "sparse.pt");
  EXPECT_TRUE(file->Verify().empty());
  std::byte last{};
  file->ReadElements(file->root().at(0).AsTensor(), kLarge - 1, {&last, 1});
  EXPECT_EQ(last, std::byte{77});
  EXPECT_EQ(ReadAll(*file, file->root().at(1).AsTensor()), "\5\5\5");
}

}  // namespace
}  // namespace muonstore::torchfile
