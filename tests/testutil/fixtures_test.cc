#include "tests/testutil/fixtures.h"

#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muonstore::testutil {
namespace {

using ::testing::Contains;
using ::testing::Field;

TEST(Fixtures, RepositoryDataIsAlwaysTheLastRoot) {
  const std::vector<std::filesystem::path> roots = FixtureRoots();
  ASSERT_FALSE(roots.empty());
  EXPECT_EQ(roots.back(), RepositoryData());
  EXPECT_TRUE(std::filesystem::is_directory(roots.back()));
}

TEST(Fixtures, CaseNamesAreUniqueAndStayUniqueAsTestNames) {
  std::set<std::string> names;
  std::set<std::string> test_names;
  for (const DeepSpeedCase& one : DeepSpeedCases()) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
    EXPECT_TRUE(test_names.insert(TestName(one.name)).second) << one.name;
    EXPECT_TRUE(std::filesystem::exists(one.folder / "golden.h5")) << one.name;
  }
  EXPECT_GE(names.size(), 25U);
}

TEST(Fixtures, TagsOfATwiceSavedCaseAreListedApart) {
  const std::vector<DeepSpeedTag> tags = DeepSpeedTags();
  for (const char* tag : {"step5", "step8"}) {
    EXPECT_THAT(tags, Contains(AllOf(Field(&DeepSpeedTag::case_name,
                                           "s2-ws2-bf16-none-twotags"),
                                     Field(&DeepSpeedTag::tag, tag))));
  }
  EXPECT_THAT(tags, Contains(Field(&DeepSpeedTag::root_name, "ckpt_resaved")));
}

TEST(Fixtures, EveryTagHasFiles) {
  for (const DeepSpeedTag& tag : DeepSpeedTags()) {
    EXPECT_FALSE(std::filesystem::is_empty(tag.path())) << tag.ToString();
  }
}

TEST(Fixtures, AnUnknownFixtureIsNamed) {
  try {
    FixturePath("deepspeed/no-such-case");
    FAIL() << "found a fixture that does not exist";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("no-such-case"));
  }
}

TEST(Fixtures, TestNameKeepsWhatTellsNamesApart) {
  EXPECT_EQ(TestName("s2-ws2/ckpt/step8"), "s2_ws2_ckpt_step8");
  EXPECT_EQ(TestName("oddmid+rr"), "oddmid_and_rr");
}

}  // namespace
}  // namespace muonstore::testutil
