// The example of formats/native/README.md, byte by byte: files that version 1
// wrote are read for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/native/checkpoint.h"
#include "formats/native/file_names.h"
#include "formats/native/verify.h"
#include "src/base/str.h"
#include "tests/native/save.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/memory_checkpoint.h"
#include "tests/testutil/scratch.h"

namespace muonstore::native {
namespace {

using testing::ElementsAre;

std::string ExamplePath() {
  return (testutil::RepositoryData().parent_path() / "native/example/step5")
      .string();
}

std::string RankFile(const std::string& directory, int32_t rank) {
  return testutil::ReadBytes(
      StrCat(directory, "/", RankFileName(rank, SaveIdIn(directory))));
}

// The bytes of `text`: hexadecimal, with spaces anywhere.
std::string FromHex(std::string_view text) {
  std::string bytes;
  std::string digits;
  for (const char c : text) {
    if (c != ' ') {
      digits += c;
    }
    if (digits.size() == 2) {
      bytes += static_cast<char>(std::stoi(digits, nullptr, 16));
      digits.clear();
    }
  }
  return bytes;
}

void ExpectExampleBytes(const std::string& directory) {
  const std::string file = RankFile(directory, 0);
  EXPECT_EQ(file.size(), 13240U);
  EXPECT_EQ(file.substr(0, 12), FromHex("8948 4446 0d0a 1a0a 02 08 08 00"));
  EXPECT_EQ(file.substr(0x1c, 16),
            FromHex("b833000000000000 0030000000000000"));
  EXPECT_EQ(file.substr(0x1000, 16),
            FromHex("0000803f 00000040 00004040 00008040"));
  EXPECT_EQ(file.substr(0x1010, 0xff0), std::string(0xff0, '\0'));
  EXPECT_EQ(file.substr(0x2000, 16),
            FromHex("cdcccc3d cdcc4c3e 9a99993e cdcccc3e"));
  EXPECT_EQ(file.substr(0x3000, 4), "OHDR");
  EXPECT_EQ(RankFile(directory, 1).substr(0x1000, 16),
            FromHex("0000a040 0000c040 00000000 00000000"));
  const std::string checksums = testutil::ReadBytes(
      StrCat(directory, "/", ChecksumsName(SaveIdIn(directory))));
  EXPECT_EQ(checksums.size(), 104U);
  EXPECT_EQ(checksums.substr(0, 0x20),
            FromHex("6d756f6e626c6b31 0010000000000000 1000000000000000 "
                    "b40d51c42e522fa8"));
}

TEST(NativeExample, IsReadAndWhole) {
  const auto fs = PosixFileSystem();
  EXPECT_THAT(VerifyTag(fs, ExamplePath(), {}).findings, testing::IsEmpty());
  const auto checkpoint = NativeCheckpoint::Open(fs, ExamplePath(), {});
  EXPECT_EQ(checkpoint->info().step, 5);
  EXPECT_EQ(checkpoint->info().num_ranks, 2);
  ASSERT_EQ(checkpoint->tensors().size(), 2U);
  EXPECT_THAT(ReadTensorF32(*checkpoint, 0, {0, 6}),
              ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(ReadTensorF32(*checkpoint, 1, {0, 6}),
              ElementsAre(.1F, .2F, .3F, .4F, .5F, .6F));
}

TEST(NativeExample, HasTheBytesOfThePage) { ExpectExampleBytes(ExamplePath()); }

TEST(NativeExample, IsWhatIsWrittenToday) {
  testutil::MemoryCheckpoint source;
  source.mutable_info().groups = {
      {.name = "muon", .optimizer = Optimizer::kMuon}};
  source.Add({.parameter = "w", .kind = "master", .shape = {2, 3}},
             {1, 2, 3, 4, 5, 6});
  source.Add({.parameter = "w", .shape = {2, 3}},
             {.1F, .2F, .3F, .4F, .5F, .6F});
  const testutil::Scratch scratch;
  ExpectExampleBytes(Save(PosixFileSystem(), (scratch / "root").string(),
                          {.tag = "step5"}, source,
                          LayoutOf(source, {.stage = 2, .num_ranks = 2})));
}

}  // namespace
}  // namespace muonstore::native
