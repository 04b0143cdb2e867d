// Which files need no parsing, as another one says the same.
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/torchfile/torch_file.h"
#include "muonstore/error.h"
#include "tests/testutil/scratch.h"
#include "tests/torchfile/pickle_builder.h"
#include "tests/torchfile/zip_builder.h"

namespace muonstore::torchfile {
namespace {

class ZipTwinTest : public testing::Test {
 protected:
  static std::vector<ZipRecord> Records() {
    auto records =
        TorchRecords(pickle::Whole(pickle::Dict({{"w", pickle::Tensor()}})),
                     {pickle::Floats(6)});
    ZipRecord id = records.back();
    id.name.replace(id.name.find("data/0"), 6, ".data/serialization_id");
    id.data = "123";
    records.push_back(id);
    return records;
  }

  std::string Write(const std::string& name, const std::string& bytes) const {
    testutil::WriteBytes(scratch_ / name, bytes);
    return (scratch_ / name).string();
  }

  // Whether a file with one thing changed is taken for a twin.
  bool IsTwin(const std::function<void(std::vector<ZipRecord>&)>& change) {
    auto records = Records();
    change(records);
    const auto file = TorchFile::Open(PosixFileSystem(),
                                      Write("rank0.pt", BuildZip(Records())));
    return file->HasTwinAt(Write("rank1.pt", BuildZip(records)));
  }

  testutil::Scratch scratch_;
};

constexpr size_t kPickle = 0;
constexpr size_t kTwinPayload = 3;
constexpr size_t kId = 4;

TEST_F(ZipTwinTest, StoragesIdsAndTheRootsNameMayDiffer) {
  EXPECT_TRUE(IsTwin([](auto& /*records*/) {}));
  EXPECT_TRUE(
      IsTwin([](auto& records) { records[kTwinPayload].data[5] ^= 1; }));
  EXPECT_TRUE(IsTwin([](auto& records) { records[kId].data = "456"; }));
  EXPECT_TRUE(IsTwin([](auto& records) {
    for (ZipRecord& record : records) {
      record.name = "other" + record.name.substr(record.name.find('/'));
    }
  }));
}

TEST_F(ZipTwinTest, AllElseMayNot) {
  ASSERT_TRUE(Records()[kPickle].name.ends_with("data.pkl"));
  for (size_t i = 0; i < Records()[kPickle].data.size(); ++i) {
    EXPECT_FALSE(IsTwin([&](auto& records) { records[kPickle].data[i] ^= 1; }))
        << i;
    // With a checksum that says nothing changed.
    EXPECT_FALSE(IsTwin([&](auto& records) {
      records[kPickle].crc = SlowCrc32(records[kPickle].data);
      records[kPickle].local_crc = records[kPickle].crc;
      records[kPickle].data[i] ^= 1;
    })) << i;
  }
  EXPECT_FALSE(IsTwin([](auto& records) { records.pop_back(); }));
  EXPECT_FALSE(IsTwin([](auto& records) {
    records.push_back(records[kTwinPayload]);
    records.back().name.back() = '1';
  }));
  EXPECT_FALSE(
      IsTwin([](auto& records) { records[kTwinPayload].data += "more"; }));
  EXPECT_FALSE(
      IsTwin([](auto& records) { std::swap(records[1], records[2]); }));
  EXPECT_FALSE(IsTwin([](auto& records) { records[kPickle].crc = 7; }));
}

TEST_F(ZipTwinTest, WhatIsNoZipHasNone) {
  const std::string whole = BuildZip(Records());
  const auto file =
      TorchFile::Open(PosixFileSystem(), Write("rank0.pt", whole));
  for (size_t size = 0; size < whole.size(); size += 13) {
    EXPECT_FALSE(file->HasTwinAt(Write("cut.pt", whole.substr(0, size))));
  }
  EXPECT_FALSE(file->HasTwinAt(Write("text.pt", "no zip at all")));
  try {
    (void)file->HasTwinAt((scratch_ / "absent.pt").string());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  }
}

}  // namespace
}  // namespace muonstore::torchfile
