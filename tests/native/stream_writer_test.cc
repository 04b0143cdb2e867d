#include "formats/native/stream_writer.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "src/base/aligned_bytes.h"
#include "src/base/pending.h"

namespace muonstore::native {
namespace {

// Keeps what is written, and does it only when the handle is waited for, so
// that memory that is used again too early shows.
class LazyFile final : public WritableFile {
 public:
  struct Write {
    uint64_t offset_bytes;
    std::span<const std::byte> data;
  };

  const std::string& path() const override { return path_; }
  void WriteAt(uint64_t offset_bytes,
               std::span<const std::byte> data) override {
    content.resize(std::max(content.size(), offset_bytes + data.size()));
    std::copy(data.begin(), data.end(),
              content.begin() + static_cast<std::ptrdiff_t>(offset_bytes));
  }
  PendingPtr StartWrite(uint64_t offset_bytes,
                        std::span<const std::byte> data) override {
    writes.push_back({offset_bytes, data});
    under_way.push_back(writes.back());
    max_under_way = std::max(max_under_way, under_way.size());
    return std::make_unique<Lazy>(*this, writes.back());
  }
  void Sync() override {}
  void Close() override {}

  std::vector<std::byte> content;
  std::vector<Write> writes;
  std::vector<Write> under_way;
  size_t max_under_way = 0;
  size_t fail_at = ~size_t{0};  // The write, in the order of waiting.

 private:
  class Lazy final : public Pending {
   public:
    Lazy(LazyFile& file, const Write& write) : file_(file), write_(write) {}
    ~Lazy() override {
      if (!done_) Leave();
    }
    void Wait() override {
      if (std::exchange(done_, true)) return;
      Leave();
      if (file_.fail_at-- == 0) {
        throw Error(ErrorCode::kResourceExhausted, "no space");
      }
      file_.WriteAt(write_.offset_bytes, write_.data);
    }
    bool done() const override { return done_; }

   private:
    void Leave() {
      std::erase_if(file_.under_way, [&](const Write& write) {
        return write.offset_bytes == write_.offset_bytes;
      });
    }

    LazyFile& file_;
    Write write_;
    bool done_ = false;
  };

  std::string path_ = "lazy";
};

std::vector<std::byte> Unique(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// What the file must hold: nothing before 4096, then what was appended.
std::vector<std::byte> Behind4096(std::span<const std::byte> bytes) {
  std::vector<std::byte> expected(4096 + bytes.size());
  std::ranges::copy(bytes, expected.begin() + 4096);
  return expected;
}

TEST(StreamWriter, WritesAnyPiecesInOrder) {
  for (const uint64_t buffer_bytes : {1U, 16384U, 100'000U}) {
    LazyFile file;
    StreamWriter stream(file, 4096, buffer_bytes);
    const auto bytes = Unique(700'001, buffer_bytes);
    std::mt19937_64 random(1);
    for (size_t at = 0; at < bytes.size();) {
      EXPECT_EQ(stream.position(), 4096 + at);
      auto piece = std::vector<std::byte>(
          bytes.begin() + static_cast<std::ptrdiff_t>(at),
          bytes.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(
                              bytes.size(), at + random() % 30'000)));
      stream.Append(piece);
      stream.Settle();
      at += piece.size();
      std::ranges::fill(piece, std::byte{0xee});  // It is the caller's again.
    }
    stream.Finish();
    EXPECT_TRUE(file.content == Behind4096(bytes)) << buffer_bytes;
    EXPECT_TRUE(file.under_way.empty());
    EXPECT_EQ(file.max_under_way, 4U);
    for (size_t i = 0; i + 1 < file.writes.size(); ++i) {
      EXPECT_EQ(file.writes[i].offset_bytes % 4096, 0U);
      EXPECT_EQ(file.writes[i].data.size() % 4096, 0U);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(file.writes[i].data.data()) % 4096,
                0U);
    }
  }
}

TEST(StreamWriter, LargeRunsInWholePagesAreNotCopied) {
  LazyFile file;
  StreamWriter stream(file, 4096, 1 << 20);
  const auto head = Unique(3 * 4096, 1);
  const auto random = Unique((17 << 20) + 5, 2);
  AlignedBytes memory(random.size());
  std::ranges::copy(random, memory.data());
  stream.Append(head);
  stream.Append(memory.span());
  const auto& borrowed = file.writes.back();
  EXPECT_EQ(borrowed.data.data(), memory.data());
  EXPECT_EQ(borrowed.data.size(), 17U << 20);
  EXPECT_EQ(borrowed.offset_bytes, 4U * 4096);
  stream.Settle();
  EXPECT_EQ(file.under_way.size(), 1U);  // The head's.
  std::ranges::fill(memory.span(), std::byte{0xee});
  stream.Finish();
  auto bytes = head;
  bytes.insert(bytes.end(), random.begin(), random.end());
  EXPECT_TRUE(file.content == Behind4096(bytes));
}

TEST(StreamWriter, RunsThatDoNotLieAlikeAreCopied) {
  LazyFile file;
  StreamWriter stream(file, 4096, 1 << 20);
  const auto random = Unique(17 << 20, 3);
  AlignedBytes memory(random.size() + 4096);
  std::ranges::copy(random, memory.data() + 8);
  stream.Append(memory.span().subspan(8, random.size()));
  stream.Append(memory.span().subspan(8, 3));
  stream.Finish();
  auto bytes = random;
  bytes.insert(bytes.end(), random.begin(), random.begin() + 3);
  EXPECT_TRUE(file.content == Behind4096(bytes));
  EXPECT_TRUE(std::ranges::none_of(file.writes, [](const auto& write) {
    return write.data.size() > (1 << 20);
  }));
}

TEST(StreamWriter, EveryFailureIsSeenAtTheLatestByFinish) {
  const auto bytes = Unique(200'000, 4);
  for (size_t fail_at = 0; fail_at < 13; ++fail_at) {
    LazyFile file;
    file.fail_at = fail_at;
    StreamWriter stream(file, 4096, 4 * 16384);
    EXPECT_THROW(
        {
          stream.Append(bytes);
          stream.Settle();
          stream.Finish();
        },
        Error)
        << fail_at;
  }
}

TEST(StreamWriter, AnErrorLeavesNothingOfTheCallersUnderWay) {
  const AlignedBytes memory((16 << 20) + 10'000);
  std::ranges::fill(memory.span(), std::byte{1});
  // The borrowed run fails; then the copy of what is behind it does, for which
  // the write of a buffer must be waited for.
  for (const size_t num_before : {0, 4}) {
    LazyFile file;
    StreamWriter stream(file, 4096, 4 * 4096);
    for (size_t i = 0; i < num_before; ++i) {
      stream.Append(memory.span().first(4096));
    }
    file.fail_at = 0;
    EXPECT_THROW(
        {
          stream.Append(memory.span());
          stream.Settle();
        },
        Error);
    for (const LazyFile::Write& write : file.under_way) {
      EXPECT_LT(write.data.size(), size_t{16} << 20);
    }
  }
}

TEST(StreamWriter, NothingIsWrittenForNothing) {
  LazyFile file;
  StreamWriter stream(file, 8192, 1 << 20);
  stream.Append({});
  stream.Settle();
  stream.Finish();
  EXPECT_TRUE(file.writes.empty());
  EXPECT_EQ(stream.position(), 8192U);
}

}  // namespace
}  // namespace muonstore::native
