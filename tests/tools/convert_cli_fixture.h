// A test of ckpt-convert with a source and a folder of its own.
#ifndef MUONSTORE_TESTS_TOOLS_CONVERT_CLI_FIXTURE_H_
#define MUONSTORE_TESTS_TOOLS_CONVERT_CLI_FIXTURE_H_

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testutil/fixtures.h"
#include "tests/testutil/scratch.h"
#include "tests/tools/cli.h"
#include "tests/tools/convert_cli.h"

namespace muonstore::testutil {

class ConvertCliTest : public testing::Test {
 protected:
  std::string Out(const std::string& name = "out") const {
    return (scratch_ / name).string();
  }
  // Exits with `code` and says these words; nothing is left at out.
  void ExpectRefused(std::vector<std::string> arguments, int code,
                     const std::string& words) const {
    const auto before = Snapshot(scratch_.path());
    const ProcessResult result = RunConvert(std::move(arguments));
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, testing::HasSubstr(words));
    EXPECT_THAT(result.out, testing::IsEmpty());
    EXPECT_TRUE(Snapshot(scratch_.path()) == before);
  }

  const std::string source_ = CheckpointRoot("s2-ws2-bf16-none-base");
  Scratch scratch_;
};

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_TOOLS_CONVERT_CLI_FIXTURE_H_
