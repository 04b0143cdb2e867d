// Swap files that belong to nothing or are too long: verify lists them.

#include "formats/deepspeed/swap_files.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/deepspeed/crafted.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/scratch.h"

namespace muonstore::deepspeed {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testutil::ReadBytes;
using testutil::WriteBytes;

class SwapFilesTest : public testing::Test {
 protected:
  static CheckpointSpec SwappedSpec() {
    CheckpointSpec spec = CraftedSpec(3);
    spec.swapped_parity = 0;
    return spec;
  }

  void SetUp() override { crafted_.Open(); }

  fs::path Folder(const std::string& name) const {
    return fs::path(crafted_.tag()) / "offloaded_tensors" / name;
  }

  void ExpectOne(Finding::Severity severity, const std::string& code,
                 const std::vector<std::string>& words) const {
    crafted_.OpenWritten();
    const std::vector<Finding> findings = crafted_.Verify();
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_EQ(findings[0].severity, severity);
    EXPECT_EQ(findings[0].code, code);
    for (const std::string& word : words) {
      EXPECT_THAT(findings[0].ToString(), HasSubstr(word));
    }
  }

  // By opening, and by verify.
  void ExpectRefused(const std::vector<std::string>& words) const {
    const auto error = ErrorOf([&] { crafted_.OpenWritten(); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kDataLoss);
    const std::vector<Finding> findings = crafted_.Verify();
    ASSERT_FALSE(findings.empty());
    EXPECT_EQ(findings[0].severity, Finding::Severity::kFault);
    for (const std::string& word : words) {
      EXPECT_THAT(error->what(), HasSubstr(word));
      EXPECT_THAT(findings[0].ToString(), HasSubstr(word));
    }
  }

  Crafted crafted_{SwappedSpec()};
};

TEST_F(SwapFilesTest, NothingIsExtra) {
  EXPECT_TRUE(fs::exists(Folder("rank00") / "7_0.tensor.swp"));
  EXPECT_THAT(crafted_.Verify(), IsEmpty());
}

TEST_F(SwapFilesTest, AFileThatNoStateNames) {
  WriteBytes(Folder("rank01") / "9_99.tensor.swp", std::string(1024, 'x'));
  ExpectOne(Finding::Severity::kNote, "extra_files",
            {"rank01/9_99.tensor.swp", "does not name"});
}

TEST_F(SwapFilesTest, FoldersOfOtherRanks) {
  for (const char* name : {"rank02", "rank1", "rank", "old"}) {
    fs::create_directories(Folder(name));
    ExpectOne(Finding::Severity::kNote, "extra_files", {name, "no rank"});
    fs::remove(Folder(name));
  }
  WriteBytes(Folder("note.txt"), "x");
  ExpectOne(Finding::Severity::kNote, "extra_files", {"note.txt"});
}

TEST_F(SwapFilesTest, AFileThatIsTooLong) {
  const fs::path file = Folder("rank01") / "momentum_buffer-7_0.tensor.swp";
  const std::string bytes = ReadBytes(file);
  ASSERT_EQ(bytes.size(), 1024U);
  WriteBytes(file, bytes.substr(0, 80));
  EXPECT_THAT(crafted_.Verify(), IsEmpty());
  WriteBytes(file, bytes + "x");
  ExpectRefused({"momentum_buffer-7_0", "at most 1024", "1025"});
}

TEST_F(SwapFilesTest, TheBlockGrowsWithTheThreadsOfTheConfig) {
  PythonValue aio = PythonValue::Dict();
  aio.Set("intra_op_parallelism", PythonValue::Int(4));
  for (const int rank : {0, 1}) {
    crafted_.model(rank).Get("ds_config").Set("aio", aio);
  }
  crafted_.Open();
  const fs::path file = Folder("rank00") / "7_0.tensor.swp";
  WriteBytes(file, ReadBytes(file) + std::string(3072, 'x'));
  EXPECT_THAT(crafted_.Verify(), IsEmpty());
  WriteBytes(file, ReadBytes(file) + "x");
  ExpectRefused({"at most 4096"});
}

}  // namespace
}  // namespace muonstore::deepspeed
