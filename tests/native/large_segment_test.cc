// Segments of many blocks: what several requests and threads at once could mix
// up.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/native/checkpoint.h"
#include "formats/native/file_names.h"
#include "muonstore/error.h"
#include "src/base/aligned_bytes.h"
#include "src/base/str.h"
#include "tests/native/compare.h"
#include "tests/native/save.h"
#include "tests/testutil/forwarding_file_system.h"
#include "tests/testutil/memory_checkpoint.h"
#include "tests/testutil/scratch.h"

namespace muonstore::native {
namespace {

using testing::HasSubstr;

constexpr uint64_t kBlockBytes = 256 << 10;

std::unique_ptr<testutil::MemoryCheckpoint> LargeCheckpoint() {
  auto checkpoint = std::make_unique<testutil::MemoryCheckpoint>();
  checkpoint->mutable_info().groups = {
      {.name = "muon", .optimizer = Optimizer::kMuon}};
  checkpoint->mutable_info().step = 3;
  float scale = 0.25F;
  for (const char* kind : {"master", "momentum"}) {
    for (const char* name : {"a", "b"}) {
      const std::vector<int64_t> shape = {701, 803};
      checkpoint->Add({.parameter = name, .kind = kind, .shape = shape},
                      testutil::UniqueValues(701 * 803, scale));
      scale = -2 * scale;
    }
  }
  return checkpoint;
}

class LargeSegment : public testing::Test {
 protected:
  // Returns the tag's folder.
  std::string SaveWith(const SinkFileResources& resources, size_t piece_bytes,
                       int32_t zstd_level = 0) {
    const std::string root = (scratch_ / StrCat("root", num_saves_++)).string();
    os::OutputRoot output(fs_, root);
    const auto sink = MakeNativeSink(
        output,
        {.tag = "t", .zstd_level = zstd_level, .block_bytes = kBlockBytes},
        *source_, layout_);
    sink->SetFileResources(resources);
    Fill(*sink, *source_, piece_bytes);
    sink->Commit();
    return root + "/t";
  }

  std::unique_ptr<NativeCheckpoint> Open(const std::string& directory) {
    return NativeCheckpoint::Open(fs_, directory, {});
  }

  // Where every block is, and its checksum.
  static std::string Blocks(const std::string& directory) {
    return testutil::ReadBytes(directory + "/" +
                               ChecksumsName(SaveIdIn(directory)));
  }

  testutil::Scratch scratch_;
  std::shared_ptr<FileSystem> fs_ = PosixFileSystem();
  std::unique_ptr<testutil::MemoryCheckpoint> source_ = LargeCheckpoint();
  TargetLayout layout_ = LayoutOf(*source_, {.stage = 2, .num_ranks = 2});
  int num_saves_ = 0;
};

TEST_F(LargeSegment, TheBytesDoNotDependOnBuffersThreadsAndPieces) {
  for (const int32_t zstd_level : {0, 3}) {
    const std::string plain = SaveWith({}, 1 << 20, zstd_level);
    for (const auto& [resources, piece] :
         {std::pair(SinkFileResources{.buffer_bytes = 1}, size_t{99'991}),
          std::pair(
              SinkFileResources{.buffer_bytes = 64 << 20, .num_threads = 3},
              size_t{1} << 30),
          std::pair(
              SinkFileResources{.buffer_bytes = 3 << 20, .num_threads = 16},
              size_t{4096})}) {
      const std::string other = SaveWith(resources, piece, zstd_level);
      EXPECT_TRUE(Blocks(plain) == Blocks(other)) << zstd_level << " " << piece;
      ExpectSameTensors(*source_, *Open(other));
    }
  }
}

TEST_F(LargeSegment, AnyRangeIntoAnyMemory) {
  for (const int32_t zstd_level : {0, 1}) {
    const auto checkpoint = Open(SaveWith({}, 1 << 20, zstd_level));
    std::vector<std::byte> all(
        static_cast<size_t>(checkpoint->segments()[0].num_elements) * 4);
    for (size_t at = 0; at < all.size(); at += 4) {  // Nothing large.
      const size_t size = std::min<size_t>(40'000, all.size() - at);
      checkpoint->ReadSegment(0, static_cast<int64_t>(at / 4),
                              std::span(all).subspan(at, size));
      at += size - 4;
    }
    const AlignedBytes memory(all.size() + 8192);
    for (const size_t begin : {0, 4, 4096, 262'144, 300'004}) {
      for (const size_t shift : {size_t{0}, size_t{8}, begin % 4096}) {
        const size_t size = all.size() - begin;
        const auto out = memory.span().subspan(shift, size);
        std::ranges::fill(out, std::byte{0});
        checkpoint->ReadSegment(0, static_cast<int64_t>(begin / 4), out);
        EXPECT_TRUE(std::ranges::equal(out, std::span(all).subspan(begin)))
            << begin << " " << shift;
      }
    }
  }
}

TEST_F(LargeSegment, DamageInAnyBlockOfALargeReadIsFound) {
  const std::string directory = SaveWith({}, 1 << 20);
  const std::string path =
      directory + "/" + RankFileName(0, SaveIdIn(directory));
  const std::string sound = testutil::ReadBytes(path);
  const size_t size = 701 * 803 * 4;  // A rank's half of two matrices.
  for (const size_t at : {size_t{0}, size - 1, size / 2, size_t{262'144}}) {
    std::string damaged = sound;
    damaged[4096 + at] = static_cast<char>(damaged[4096 + at] ^ 4);
    testutil::WriteBytes(path, damaged);
    const AlignedBytes out(size);
    try {
      Open(directory)->ReadSegment(0, 0, out.span());
      FAIL() << at;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
      EXPECT_EQ(error.place().file, path);
      EXPECT_EQ(error.place().offset_bytes,
                4096 + at / kBlockBytes * kBlockBytes);
    }
  }
}

// Counts open files and fails the n-th request.
class FailingReads final : public testutil::ForwardingFileSystem {
 public:
  FailingReads() : ForwardingFileSystem(PosixFileSystem()) {}

  std::unique_ptr<RandomAccessFile> OpenForRead(
      const std::string& path) override {
    ++num_opens;
    return std::make_unique<File>(*this, base().OpenForRead(path));
  }

  int num_opens = 0;
  int fail_in = -1;

 private:
  class File final : public RandomAccessFile {
   public:
    File(FailingReads& owner, std::unique_ptr<RandomAccessFile> file)
        : owner_(owner), file_(std::move(file)) {}
    const std::string& path() const override { return file_->path(); }
    uint64_t size_bytes() const override { return file_->size_bytes(); }
    void ReadAt(uint64_t offset_bytes, std::span<std::byte> out) override {
      if (owner_.fail_in-- == 0) {
        throw Error(ErrorCode::kUnavailable, "cannot read: the disk broke");
      }
      file_->ReadAt(offset_bytes, out);
    }

   private:
    FailingReads& owner_;
    std::unique_ptr<RandomAccessFile> file_;
  };
};

TEST_F(LargeSegment, AFailedRequestFailsTheReadAndTheNextOneWorks) {
  const auto failing = std::make_shared<FailingReads>();
  const auto checkpoint =
      NativeCheckpoint::Open(failing, SaveWith({}, 1 << 20), {});
  const AlignedBytes out(701 * 803 * 4);
  const int before = failing->num_opens;
  // Of the ninth block a part is padding: it is kept from then on.
  for (int n = 0; n < 8; ++n) {
    failing->fail_in = n;
    try {
      checkpoint->ReadSegment(0, 0, out.span());
      FAIL() << n;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("the disk broke"));
    }
    failing->fail_in = -1;
    checkpoint->ReadSegment(0, 0, out.span());
  }
  EXPECT_EQ(failing->num_opens, before + 1);
}

}  // namespace
}  // namespace muonstore::native
