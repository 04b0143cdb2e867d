#include "tests/testutil/memory_sink.h"

#include <algorithm>
#include <utility>

#include <gtest/gtest.h>

#include "muonstore/dtype.h"

namespace muonstore::testutil {
namespace {

size_t SegmentBytes(const SinkSegment& segment) {
  return static_cast<size_t>(segment.num_elements) *
         static_cast<size_t>(SizeBytes(segment.dtype));
}

}  // namespace

class MemorySink::File final : public SinkFile {
 public:
  File(MemorySink& sink, size_t index)
      : sink_(sink), index_(index), path_("file " + std::to_string(index)) {}

  const std::string& path() const override { return path_; }
  std::span<const SinkSegment> segments() const override {
    return sink_.files_[index_];
  }
  void Append(size_t segment, std::span<const std::byte> bytes) override {
    if (sink_.on_append) sink_.on_append(index_);
    auto& contents = sink_.contents_[index_];
    for (size_t i = 0; i < segment; ++i) {
      EXPECT_EQ(contents[i].size(), SegmentBytes(segments()[i])) << path_;
    }
    for (size_t i = segment + 1; i < contents.size(); ++i) {
      EXPECT_TRUE(contents[i].empty()) << path_;
    }
    auto& to = contents[segment];
    to.insert(to.end(), bytes.begin(), bytes.end());
    EXPECT_LE(to.size(), SegmentBytes(segments()[segment])) << path_;
    const std::lock_guard lock(sink_.mutex_);
    sink_.largest_append_ = std::max(sink_.largest_append_, bytes.size());
  }
  void Close() override {
    for (size_t i = 0; i < segments().size(); ++i) {
      EXPECT_EQ(sink_.contents_[index_][i].size(), SegmentBytes(segments()[i]));
    }
    sink_.num_closed_.fetch_add(1);
  }

 private:
  MemorySink& sink_;
  size_t index_;
  std::string path_;
};

MemorySink::MemorySink(std::vector<FilePlan> files) : files_(std::move(files)) {
  for (const FilePlan& plan : files_) contents_.emplace_back(plan.size());
}

std::vector<float> MemorySink::Floats(size_t file, size_t segment) const {
  std::vector<float> values(
      static_cast<size_t>(files_[file][segment].num_elements));
  ConvertToF32(files_[file][segment].dtype, contents_[file][segment], values);
  return values;
}

std::unique_ptr<SinkFile> MemorySink::CreateFile(size_t file) {
  return std::make_unique<File>(*this, file);
}

void MemorySink::Commit() {
  EXPECT_EQ(num_closed(), num_files());
  EXPECT_TRUE(finished_);
  EXPECT_FALSE(committed_);
  committed_ = true;
}

}  // namespace muonstore::testutil
