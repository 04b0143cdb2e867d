// Every command of ckpt-inspect on a native tag.
#include "tests/tools/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/open.h"
#include "src/base/str.h"
#include "tests/native/save.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/scratch.h"

namespace muonstore::native {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testutil::Inspect;
using testutil::InspectJson;

class NativeCli : public testing::Test {
 protected:
  NativeCli() {
    const auto source = OpenCheckpoint(PosixFileSystem(), Source());
    path_ = Save(PosixFileSystem(), (scratch_ / "root").string(),
                 {.tag = "native5"}, *source,
                 LayoutOf(*source, {.stage = 3, .num_ranks = 3}));
  }

  static std::string Source() {
    return testutil::CheckpointRoot("s2-ws2-bf16-none-base");
  }

  testutil::Scratch scratch_;
  std::string path_;
};

TEST_F(NativeCli, ListAndSummary) {
  const auto list = InspectJson({"list", (scratch_ / "root").string()});
  EXPECT_EQ(list["tags"][0]["tag"], "native5");
  const auto result = Inspect({"summary", path_});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("native"));
  EXPECT_THAT(result.out, HasSubstr("from DeepSpeed 0.19.8"));
}

TEST_F(NativeCli, WithoutAReadableManifestTheAgeIsUnknown) {
  testutil::WriteBytes(path_ + "/manifest.json", "");
  const std::string root = (scratch_ / "root").string();
  EXPECT_THAT(Inspect({"list", root}).out,
              ContainsRegex("native5 .* -  INCOMPLETE"));
  EXPECT_TRUE(InspectJson({"list", root})["tags"][0]["modified_ns"].is_null());
}

TEST_F(NativeCli, VerifyIsCleanAndThenNamesTheDamage) {
  EXPECT_EQ(Inspect({"verify", path_}).exit_code, 0);
  const std::string file =
      StrCat(path_, "/rank-00002.", SaveIdIn(path_), ".h5");
  std::string bytes = testutil::ReadBytes(file);
  bytes[4100] = static_cast<char>(~bytes[4100]);
  testutil::WriteBytes(file, bytes);
  const auto result = Inspect({"verify", path_});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("block 0 of master is damaged"));
  EXPECT_THAT(result.out, HasSubstr("rank-00002"));
  // A block may hold many tensors; JSON always names them all.
  EXPECT_THAT(result.out, ContainsRegex("and [0-9]+ more"));
  const auto all = Inspect({"verify", path_, "--all"});
  EXPECT_THAT(all.out, Not(ContainsRegex("and [0-9]+ more")));
  EXPECT_GT(all.out.size(), result.out.size());
  const auto json = InspectJson({"verify", path_}, 1);
  EXPECT_THAT(all.out,
              HasSubstr(json["findings"][0]["tensor"].get<std::string>()));
}

TEST_F(NativeCli, DiffWithItsSourceIsEqual) {
  const auto diff = InspectJson({"diff", Source(), path_});
  EXPECT_EQ(diff["same_state"], true);
  EXPECT_GT(diff["counts"]["equal"], 60);
}

TEST_F(NativeCli, TensorsStatsAndMomentumGiveWhatTheSourceGives) {
  const auto tensors = InspectJson({"tensors", path_, "--state", "master"});
  EXPECT_EQ(tensors["tensors"].size(), 25U);
  for (const char* command : {"stats", "momentum"}) {
    const auto expected = InspectJson({command, Source()});
    const auto actual = InspectJson({command, path_});
    EXPECT_GT(actual["matrices"].size(), 8U);
    EXPECT_EQ(actual["matrices"].size(), expected["matrices"].size());
    EXPECT_EQ(actual["flagged"], expected["flagged"]);
  }
}

TEST_F(NativeCli, DumpWritesTheSameFile) {
  std::vector<std::string> files;
  for (const std::string& from : {Source(), path_}) {
    const std::string out = (scratch_ / StrCat(files.size(), ".npy")).string();
    const auto result = Inspect({"dump", from, "--param", "odd.weight",
                                 "--state", "momentum", "-o", out});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    files.push_back(testutil::ReadBytes(out));
  }
  EXPECT_EQ(files[0], files[1]);
}

}  // namespace
}  // namespace muonstore::native
