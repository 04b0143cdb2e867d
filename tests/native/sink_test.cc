// The writer's contract: what it takes, refuses, leaves out and leaves behind.
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include "formats/native/checkpoint.h"
#include "formats/native/file_names.h"
#include "formats/native/verify.h"
#include "src/base/str.h"
#include "tests/native/compare.h"
#include "tests/native/random_checkpoint.h"
#include "tests/native/save.h"
#include "tests/testutil/scratch.h"

namespace muonstore::native {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
namespace stdfs = std::filesystem;

class NativeSinkTest : public testing::Test {
 protected:
  std::string Root() const { return (scratch_ / "root").string(); }

  std::unique_ptr<CheckpointSink> Make(os::OutputRoot& root,
                                       const SinkOptions& options) {
    return MakeNativeSink(root, options, *source_, layout_);
  }

  ErrorCode CodeOf(const SinkOptions& options) {
    os::OutputRoot root(fs_, Root());
    try {
      Make(root, options);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kInternal;
  }

  testutil::Scratch scratch_;
  std::shared_ptr<FileSystem> fs_ = PosixFileSystem();
  std::unique_ptr<Checkpoint> source_ = SmallCheckpoint();
  TargetLayout layout_ = LayoutOf(*source_, {.stage = 2, .num_ranks = 2});
};

TEST_F(NativeSinkTest, OptionsOutOfRangeAreRefused) {
  for (const SinkOptions& options :
       {SinkOptions{.tag = "t", .zstd_level = -1},
        SinkOptions{.tag = "t", .zstd_level = 20},
        SinkOptions{.tag = "t", .block_bytes = 0},
        SinkOptions{.tag = "t", .block_bytes = 5000},
        SinkOptions{.tag = "t", .block_bytes = 128 << 20},
        SinkOptions{.tag = ""}, SinkOptions{.tag = "a/b"},
        SinkOptions{.tag = "latest"}, SinkOptions{.tag = ".hidden"}}) {
    EXPECT_EQ(CodeOf(options), ErrorCode::kInvalidArgument) << options.tag;
  }
  EXPECT_FALSE(stdfs::exists(Root())) << "nothing was written";
}

TEST_F(NativeSinkTest, TellsItsPlanBeforeAnythingIsWritten) {
  os::OutputRoot root(fs_, Root());
  const auto sink = Make(root, {.tag = "t"});
  EXPECT_EQ(sink->path(), Root() + "/t");
  ASSERT_EQ(sink->num_files(), 2U);
  EXPECT_THAT(sink->losses(), IsEmpty());
  EXPECT_THAT(sink->notes(), IsEmpty());
  uint64_t elements = 0;
  for (size_t f = 0; f < 2; ++f) {
    uint64_t bytes = 0;
    for (const SinkSegment& segment : sink->PlanFile(f)) {
      bytes += static_cast<uint64_t>(segment.num_elements *
                                     SizeBytes(segment.dtype));
      for (const SinkPiece& piece : segment.pieces) {
        elements += static_cast<uint64_t>(piece.length);
      }
    }
    EXPECT_EQ(PayloadBytes(sink->PlanFile(f)), bytes);
  }
  // a and its momentum, b, v, frozen, buf.
  EXPECT_EQ(elements, 63U + 63 + 2000 + 5 + 12 + 2);
  EXPECT_EQ(sink->PlanFile(1)[0].name, "rank 1 master of flat group 0");
}

TEST_F(NativeSinkTest, AnExistingTagIsRefusedOrReplaced) {
  Save(fs_, Root(), {.tag = "t"}, *source_, layout_);
  EXPECT_EQ(CodeOf({.tag = "t"}), ErrorCode::kInvalidArgument);
  const auto other = SmallCheckpoint(5);
  const std::string path =
      Save(fs_, Root(), {.tag = "t", .overwrite = true}, *other, layout_);
  ExpectSameTensors(*other, *NativeCheckpoint::Open(fs_, path, {}));
  EXPECT_EQ(std::distance(stdfs::directory_iterator(path), {}), 5)
      << "two rank files, checksums, view, manifest";
}

TEST_F(NativeSinkTest, WithoutCommitNothingIsLeft) {
  {
    os::OutputRoot root(fs_, Root());
    const auto sink = Make(root, {.tag = "t"});
    Fill(*sink, *source_);
    EXPECT_FALSE(IsTagDirectory(fs_->List(Root() + "/t")));
  }
  EXPECT_FALSE(stdfs::exists(Root()));
}

TEST_F(NativeSinkTest, AFolderWithOtherFilesStaysWithoutCommit) {
  stdfs::create_directories(Root() + "/t");
  testutil::WriteBytes(Root() + "/t/notes.txt", "mine");
  {
    os::OutputRoot root(fs_, Root());
    const auto sink = Make(root, {.tag = "t", .overwrite = true});
    Fill(*sink, *source_);
  }
  EXPECT_EQ(fs_->List(Root() + "/t"), std::vector<std::string>{"notes.txt"});
}

TEST_F(NativeSinkTest, FilesOfTheUserSurviveAnOverwrite) {
  const std::string path = Save(fs_, Root(), {.tag = "t"}, *source_, layout_);
  testutil::WriteBytes(path + "/notes.txt", "mine");
  Save(fs_, Root(), {.tag = "t", .overwrite = true}, *source_, layout_);
  EXPECT_EQ(testutil::ReadBytes(path + "/notes.txt"), "mine");
  const VerifyReport report = VerifyTag(fs_, path, {});
  EXPECT_TRUE(report.whole());
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].code, "extra_files");
  EXPECT_THAT(report.findings[0].message, HasSubstr("notes.txt"));
}

TEST_F(NativeSinkTest, CommitNeedsEveryFileAndFilesEverySegment) {
  os::OutputRoot root(fs_, Root());
  const auto sink = Make(root, {.tag = "t"});
  EXPECT_THROW(sink->Commit(), Error);
  const auto file = sink->CreateFile(0);
  EXPECT_THROW(file->Close(), Error);
  const std::vector<std::byte> bytes(8);
  EXPECT_THROW(file->Append(1, bytes), Error) << "out of order";
  EXPECT_THROW(file->Append(0, std::vector<std::byte>(1 << 20)), Error)
      << "beyond the end";
  file->Append(0, bytes);
}

TEST_F(NativeSinkTest, PiecesOfAnySizeGiveTheSameBytes) {
  std::vector<std::string> first;
  for (const size_t piece_bytes :
       {size_t{1} << 20, size_t{4096}, size_t{1000}, size_t{4}}) {
    os::OutputRoot root(fs_, Root());
    const auto sink =
        Make(root, {.tag = "t", .overwrite = true, .block_bytes = 4096});
    Fill(*sink, *source_, piece_bytes);
    sink->Commit();
    std::vector<std::string> payloads;
    for (const auto& entry : stdfs::directory_iterator(sink->path())) {
      if (entry.path().filename().string().starts_with("checksums")) {
        payloads.push_back(testutil::ReadBytes(entry.path()));
      }
    }
    first = first.empty() ? payloads : first;
    EXPECT_EQ(payloads, first) << piece_bytes;
  }
}

TEST_F(NativeSinkTest, FilesMayBeWrittenByThreads) {
  const auto source = SmallCheckpoint();
  const TargetLayout layout =
      LayoutOf(*source, {.stage = 3, .num_ranks = 8, .sub_group_size = 20});
  for (const int level : {0, 1}) {
    os::OutputRoot root(fs_, Root());
    const auto sink =
        MakeNativeSink(root, {.tag = StrCat("t", level), .zstd_level = level},
                       *source, layout);
    std::vector<std::thread> threads;
    for (size_t f = 0; f < sink->num_files(); ++f) {
      threads.emplace_back([&, f] { FillFile(*sink, f, *source); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    sink->Commit();
    ExpectSameTensors(*source, *NativeCheckpoint::Open(fs_, sink->path(), {}));
  }
}

TEST_F(NativeSinkTest, AViewWithTooManyMappingsIsLeftOutAndSaysSo) {
  const std::string full = Save(fs_, Root(), {.tag = "t"}, *source_, layout_);
  EXPECT_TRUE(stdfs::exists(full + "/checkpoint.h5"));
  os::OutputRoot root(fs_, Root());
  const auto sink =
      Make(root, {.tag = "t", .overwrite = true, .max_mappings = 5});
  ASSERT_EQ(sink->notes().size(), 1U);
  EXPECT_EQ(sink->notes()[0],
            "checkpoint.h5 is left out: more than 5 mappings");
  Fill(*sink, *source_);
  sink->Commit();
  EXPECT_FALSE(stdfs::exists(full + "/checkpoint.h5"))
      << "it would show the old save";
  EXPECT_THAT(testutil::ReadBytes(full + "/manifest.json"),
              HasSubstr("\"omitted\":\"more than 5 mappings\""));
  EXPECT_TRUE(VerifyTag(fs_, full, {}).whole());
}

TEST_F(NativeSinkTest, WhatHdf5CannotSayLeavesTheViewOut) {
  for (const auto& [name, dims] :
       {std::pair(std::string("deep"), std::vector<int64_t>(33, 1)),
        std::pair(std::string(20000, 'n'), std::vector<int64_t>{1})}) {
    testutil::MemoryCheckpoint source;
    source.Add(
        {.parameter = name, .kind = "buffer", .shape = dims, .group = -1},
        {1.0F});
    const std::string path = Save(fs_, Root(), {.tag = "t", .overwrite = true},
                                  source, LayoutOf(source, {}));
    EXPECT_FALSE(stdfs::exists(path + "/checkpoint.h5"));
    ExpectSameTensors(source, *NativeCheckpoint::Open(fs_, path, {}));
  }
}

TEST_F(NativeSinkTest, ALongNameIsInTheView) {
  testutil::MemoryCheckpoint source;
  source.Add({.parameter = std::string(5000, '/'),
              .kind = "buffer",
              .shape = {2},
              .group = -1},
             {1.0F, 2.0F});
  const std::string path =
      Save(fs_, Root(), {.tag = "t"}, source, LayoutOf(source, {}));
  EXPECT_TRUE(stdfs::exists(path + "/checkpoint.h5"));
}

TEST_F(NativeSinkTest, TensorsInNoGroupAreSpreadOverTheRanks) {
  testutil::MemoryCheckpoint source;
  for (int i = 0; i < 8; ++i) {
    source.Add({.parameter = StrCat("w", i),
                .kind = "weight",
                .shape = {100},
                .group = -1},
               testutil::UniqueValues(100));
  }
  os::OutputRoot root(fs_, Root());
  const TargetLayout layout = LayoutOf(source, {.num_ranks = 4});
  const auto sink = MakeNativeSink(root, {.tag = "t"}, source, layout);
  for (size_t f = 0; f < 4; ++f) {
    EXPECT_EQ(PayloadBytes(sink->PlanFile(f)), 2 * 400U);
  }
}

TEST_F(NativeSinkTest, SegmentsLieOnWholePages) {
  const std::string path = Save(fs_, Root(), {.tag = "t"}, *source_, layout_);
  const hid_t file =
      H5Fopen((path + "/" + RankFileName(0, SaveIdIn(path))).c_str(),
              H5F_ACC_RDONLY, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  const hid_t dataset = H5Dopen2(file, "/segments/00000", H5P_DEFAULT);
  ASSERT_GE(dataset, 0);
  EXPECT_EQ(H5Dget_offset(dataset), 4096U);
  EXPECT_EQ(H5Dget_storage_size(dataset) % 4096, 0U);
  H5Dclose(dataset);
  H5Fclose(file);
}

// The signature is HDF5's.
herr_t Printer(hid_t /*stack*/, void* /*data*/) { return 0; }

TEST_F(NativeSinkTest, TheProcessKeepsItsOwnErrorPrinter) {
  H5Eset_auto2(H5E_DEFAULT, Printer, this);
  Save(fs_, Root(), {.tag = "t"}, *source_, layout_);
  H5E_auto2_t printer = nullptr;
  void* data = nullptr;
  H5Eget_auto2(H5E_DEFAULT, &printer, &data);
  EXPECT_EQ(printer, &Printer);
  EXPECT_EQ(data, this);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

TEST_F(NativeSinkTest, DescribesTheTargetNotTheSource) {
  const std::string path = Save(fs_, Root(), {.tag = "t"}, *source_, layout_);
  const auto copy = NativeCheckpoint::Open(fs_, path, {});
  const CheckpointInfo& info = copy->info();
  EXPECT_EQ(info.format, "native");
  EXPECT_EQ(info.tag, "t");
  EXPECT_EQ(info.path, path);
  EXPECT_EQ(info.stage, 2);
  EXPECT_EQ(info.num_ranks, 2);
  EXPECT_EQ(info.num_files, 5);
  EXPECT_EQ(info.order, "sorted by shape");
  EXPECT_EQ(copy->rule().flat_alignment_elements, 2);
  EXPECT_EQ(copy->partitioning().num_ranks(), 2);
  uint64_t bytes = 0;
  for (const auto& entry : stdfs::directory_iterator(path)) {
    bytes += entry.file_size();
  }
  EXPECT_EQ(info.total_bytes, bytes);
}

TEST_F(NativeSinkTest, LostElementsStayLost) {
  auto source = SmallCheckpoint();
  source->mutable_tensor(1).missing = {{60, 63}};
  const std::string path = Save(fs_, Root(), {.tag = "t"}, *source, layout_);
  EXPECT_THROW(NativeCheckpoint::Open(fs_, path, {}), Error);
  const auto copy = NativeCheckpoint::Open(fs_, path, {.allow_loss = true});
  EXPECT_THROW(
      ReadTensorF32(*copy, *FindTensor(*copy, {"a", "momentum"}), {0, 63}),
      Error);
  EXPECT_FALSE(VerifyTag(fs_, path, {}).whole());
}

}  // namespace
}  // namespace muonstore::native
