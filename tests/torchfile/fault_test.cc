// A file system that fails: every call once, files that change after Open, and
// many threads at once.

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "formats/torchfile/torch_file.h"
#include "tests/testutil/forwarding_file_system.h"
#include "tests/torchfile/expect_error.h"
#include "tests/torchfile/memory_file_system.h"
#include "tests/torchfile/pickle_builder.h"

namespace muonstore::torchfile {
namespace {

// Counts reads over all files; the read with number `fail_at` fails.
struct Plan {
  std::atomic<int> num_reads = 0;
  int fail_at = -1;
};

class FailingFile : public RandomAccessFile {
 public:
  FailingFile(std::unique_ptr<RandomAccessFile> file, Plan& plan)
      : file_(std::move(file)), plan_(plan) {}

  const std::string& path() const override { return file_->path(); }
  uint64_t size_bytes() const override { return file_->size_bytes(); }
  void ReadAt(uint64_t offset_bytes, std::span<std::byte> out) override {
    if (plan_.num_reads++ == plan_.fail_at) {
      throw Error(ErrorCode::kUnavailable, "the disk failed");
    }
    file_->ReadAt(offset_bytes, out);
  }

 private:
  std::unique_ptr<RandomAccessFile> file_;
  Plan& plan_;
};

// One file, whose bytes a test may change, with failing reads.
class FailingFileSystem : public testutil::ForwardingFileSystem {
 public:
  explicit FailingFileSystem(std::string bytes)
      : ForwardingFileSystem(MemoryFileSystem(std::move(bytes))) {}

  Plan plan;
  void Replace(std::string bytes) {
    set_base(MemoryFileSystem(std::move(bytes)));
  }
  void TakeAway() { is_there_ = false; }

  std::unique_ptr<RandomAccessFile> OpenForRead(
      const std::string& path) override {
    if (!is_there_) {
      throw Error(ErrorCode::kNotFound, "no such file");
    }
    return std::make_unique<FailingFile>(base().OpenForRead(path), plan);
  }

 private:
  bool is_there_ = true;
};

std::string TwoTensorFile() {
  auto records = TorchRecords(
      pickle::Whole(pickle::Dict(
          {{"a", pickle::Tensor()},
           {"b", pickle::Tensor({.storage = pickle::Storage({.key = "1"}),
                                 .size = {3, 2},
                                 .stride = {1, 3}})}})),
      {pickle::Floats(6), pickle::Floats(6, 10)});
  for (ZipRecord& record : records) {
    record.has_descriptor = true;
  }
  return BuildZip(records);
}

TEST(Fault, EveryReadOfOpenMayFail) {
  const auto fs = std::make_shared<FailingFileSystem>(TwoTensorFile());
  TorchFile::Open(fs, "x.pt");
  const int num_reads = fs->plan.num_reads;
  ASSERT_GT(num_reads, 8);
  for (int n = 0; n < num_reads; ++n) {
    fs->plan.num_reads = 0;
    fs->plan.fail_at = n;
    EXPECT_ERROR(TorchFile::Open(fs, "x.pt"), ErrorCode::kUnavailable,
                 "x.pt: ");
  }
  fs->plan.fail_at = -1;
  EXPECT_EQ(TorchFile::Open(fs, "x.pt")->root().size(), 2u);
}

TEST(Fault, EveryReadOfElementsMayFail) {
  const auto fs = std::make_shared<FailingFileSystem>(TwoTensorFile());
  const auto file = TorchFile::Open(fs, "x.pt");
  for (const char* name : {"a", "b"}) {
    const TensorInfo& tensor = file->root().Get(name).AsTensor();
    fs->plan.fail_at = -1;
    fs->plan.num_reads = 0;
    const std::string whole = ReadAll(*file, tensor);
    const int num_reads = fs->plan.num_reads;
    for (int n = 0; n < num_reads; ++n) {
      // The first read of a file checks the record as well.
      fs->plan.fail_at = -1;
      const auto fresh = TorchFile::Open(fs, "x.pt");
      fs->plan.num_reads = 0;
      fs->plan.fail_at = n;
      EXPECT_ERROR(ReadAll(*fresh, fresh->root().Get(name).AsTensor()),
                   ErrorCode::kUnavailable, "x.pt");
    }
    fs->plan.fail_at = -1;
    // The failure leaves no trace.
    EXPECT_EQ(ReadAll(*file, tensor), whole);
  }
}

TEST(Fault, VerifyReportsFailedReadsAndGoesOn) {
  const auto fs = std::make_shared<FailingFileSystem>(TwoTensorFile());
  const auto file = TorchFile::Open(fs, "x.pt");
  fs->plan.num_reads = 0;
  EXPECT_TRUE(file->Verify().empty());
  const int num_reads = fs->plan.num_reads;
  EXPECT_EQ(num_reads, 10);  // Data and descriptor of five records.
  for (int n = 0; n < num_reads; ++n) {
    fs->plan.num_reads = 0;
    fs->plan.fail_at = n;
    const std::vector<Error> faults = file->Verify();
    ASSERT_EQ(faults.size(), 1u);
    EXPECT_EQ(faults[0].code(), ErrorCode::kUnavailable);
    EXPECT_EQ(faults[0].place().file, "x.pt");
    EXPECT_GE(fs->plan.num_reads, num_reads - 1);
  }
}

TEST(Fault, FilesThatChangeAfterOpen) {
  const std::string bytes = TwoTensorFile();
  const auto fs = std::make_shared<FailingFileSystem>(bytes);
  const auto file = TorchFile::Open(fs, "x.pt");
  fs->Replace(bytes + "more");
  std::vector<Error> faults = file->Verify();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_THAT(faults[0].what(), testing::HasSubstr("changed its size"));
  // A whole record is compared with the CRC that was read by Open.
  std::string other = bytes;
  other[bytes.find(pickle::Floats(6))] ^= 1;
  fs->Replace(other);
  EXPECT_ERROR(ReadAll(*file, file->root().Get("a").AsTensor()),
               ErrorCode::kDataLoss, "CRC-32");
  fs->TakeAway();
  EXPECT_ERROR(ReadAll(*file, file->root().Get("a").AsTensor()),
               ErrorCode::kNotFound, "x.pt: no such file");
  EXPECT_ERROR(file->Verify(), ErrorCode::kNotFound, "no such file");
  EXPECT_ERROR(TorchFile::Open(fs, "x.pt"), ErrorCode::kNotFound, "x.pt");
}

TEST(Fault, ManyThreadsReadOneFile) {
  const auto file = OpenBytes(TwoTensorFile());
  const TensorInfo& a = file->root().Get("a").AsTensor();
  const TensorInfo& b = file->root().Get("b").AsTensor();
  const std::string expected_b = ReadAll(*file, b);
  std::atomic<int> num_wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        num_wrong += ReadAll(*file, a) != pickle::Floats(6) ? 1 : 0;
        num_wrong += ReadAll(*file, b) != expected_b ? 1 : 0;
        num_wrong += file->Verify().empty() ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(num_wrong, 0);
}

}  // namespace
}  // namespace muonstore::torchfile
