#include "tools/ckpt_inspect/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"

namespace muonstore::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ArgumentsTest : public testing::Test {
 protected:
  ArgumentsTest() {
    CLI::App* summary = root_.add_subcommand("summary");
    summary->add_option("PATH", text_);
    summary->add_option("--tag", text_);
    summary->add_flag("--json", flag_);
    root_.add_subcommand("list")->add_option("PATH", text_);
  }

  std::vector<std::string> Order(std::vector<std::string> arguments) {
    return WithCommandFirst(root_, std::move(arguments));
  }

  CLI::App root_;
  std::string text_;
  bool flag_ = false;
};

TEST_F(ArgumentsTest, CommandsStayOrComeToTheFront) {
  EXPECT_THAT(Order({"list", "x"}), ElementsAre("list", "x"));
  EXPECT_THAT(Order({"--json", "list", "x"}),
              ElementsAre("list", "--json", "x"));
  EXPECT_THAT(Order({"--tag", "list", "summary", "x"}),
              ElementsAre("summary", "--tag", "list", "x"));
}

TEST_F(ArgumentsTest, APathMeansSummary) {
  EXPECT_THAT(Order({"a/b"}), ElementsAre("summary", "a/b"));
  EXPECT_THAT(Order({"model.bin"}), ElementsAre("summary", "model.bin"));
  EXPECT_THAT(Order({"--tag", "step5", "a/b", "--json"}),
              ElementsAre("summary", "--tag", "step5", "a/b", "--json"));
  EXPECT_THAT(Order({"--tag=step5", "./list"}),
              ElementsAre("summary", "--tag=step5", "./list"));
  EXPECT_THAT(Order({testing::TempDir()}),
              ElementsAre("summary", testing::TempDir()));
}

TEST_F(ArgumentsTest, LinesWithoutAWordStay) {
  EXPECT_THAT(Order({}), ElementsAre());
  EXPECT_THAT(Order({"--help"}), ElementsAre("--help"));
  EXPECT_THAT(Order({"--tag"}), ElementsAre("--tag"));
}

TEST_F(ArgumentsTest, AnUnknownWordIsNamedWithTheCommands) {
  try {
    Order({"no-such-command-or-file", "a/b"});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("'no-such-command-or-file'"));
    EXPECT_THAT(error.what(), HasSubstr("summary, list"));
  }
}

}  // namespace
}  // namespace muonstore::tools
