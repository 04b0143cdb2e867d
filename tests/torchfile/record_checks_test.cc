#include "formats/torchfile/record_checks.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/torchfile/crc32.h"
#include "muonstore/error.h"
#include "tests/torchfile/memory_file_system.h"

namespace muonstore::torchfile {
namespace {

constexpr uint64_t kOffset = 100;  // Of the record in its file.
constexpr uint64_t kSize = 1 << 20;
constexpr uint64_t kRest = RecordChecks::kRestBytes;

class RecordChecksTest : public testing::Test {
 protected:
  RecordChecksTest() : bytes_(kOffset + kSize, 'x') {
    for (size_t i = 0; i < bytes_.size(); ++i) {
      bytes_[i] = static_cast<char>(i * 7 + i / 256);
    }
    records_[0] = {
        .name = "data/0",
        .offset_bytes = kOffset,
        .size_bytes = kSize,
        .crc32 = Crc32(0, std::as_bytes(std::span(bytes_)).subspan(kOffset)),
        .has_crc = true};
  }

  void Flip(uint64_t at) { bytes_[kOffset + at] ^= 1; }
  void Add(uint64_t begin, uint64_t end) {
    checks_.Add(
        file_, 0, begin,
        std::as_bytes(std::span(bytes_)).subspan(kOffset + begin, end - begin));
  }

  std::string bytes_;
  MemoryFile file_{bytes_};
  std::vector<RecordInfo> records_ = std::vector<RecordInfo>(1);
  RecordChecks checks_{records_};
};

TEST_F(RecordChecksTest, PartsInAnyOrderGiveTheCrc) {
  for (const uint64_t at : {7U, 3U, 5U, 4U, 0U, 6U, 1U, 2U}) {
    EXPECT_NO_THROW(Add(at * kSize / 8, (at + 1) * kSize / 8)) << at;
  }
}

TEST_F(RecordChecksTest, DamageIsFoundByTheLastPart) {
  Flip(kSize / 3);
  Add(kSize / 2, kSize);
  Add(kSize / 4, kSize / 2);
  try {
    Add(0, kSize / 4);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    EXPECT_EQ(error.place().offset_bytes, kOffset);
  }
}

// Padding, which nobody asks for.
TEST_F(RecordChecksTest, ASmallRestIsReadToo) {
  Flip(kSize - 1);
  Add(kRest / 2, kSize / 2);
  EXPECT_THROW(Add(kSize / 2, kSize - kRest / 2), Error);
}

TEST_F(RecordChecksTest, ALargeRestIsNotAskedFor) {
  Flip(kSize - 1);
  EXPECT_NO_THROW(Add(0, kSize - kRest - 1));
  EXPECT_EQ(file_.num_reads, 0U);
}

TEST_F(RecordChecksTest, WhatIsReadTwiceCountsOnce) {
  Flip(kSize / 3);
  for (int i = 0; i < 4; ++i) Add(0, kSize / 4);
  Add(kSize / 8, kSize / 2);  // Overlaps: left out.
  Add(kSize / 2, kSize);
  EXPECT_THROW(Add(kSize / 4, kSize / 2), Error);
}

TEST_F(RecordChecksTest, ASmallRecordIsCheckedByAnyRead) {
  records_[0].size_bytes = kRest;
  EXPECT_THROW(Add(8, 12), Error);
  EXPECT_THROW(Add(0, 0), Error) << "every read says so";
}

TEST_F(RecordChecksTest, ReadsHereAndThereAreGivenUp) {
  Flip(0);
  for (uint64_t i = 0; i < RecordChecks::kMaxParts + 1; ++i) {
    Add(16 * i, 16 * i + 1);
  }
  EXPECT_NO_THROW(Add(0, kSize));
}

}  // namespace
}  // namespace muonstore::torchfile
