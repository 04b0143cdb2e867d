#include "tests/tools/cli.h"

#include <gtest/gtest.h>

#include "tests/testutil/fixtures.h"

namespace muonstore::testutil {

ProcessResult Inspect(std::vector<std::string> arguments,
                      const ProcessOptions& options) {
  arguments.insert(arguments.begin(), MUONSTORE_CKPT_INSPECT);
  return RunProcess(arguments, options);
}

nlohmann::json InspectJson(std::vector<std::string> arguments,
                           int expected_exit_code) {
  arguments.emplace_back("--json");
  const ProcessResult result = Inspect(std::move(arguments));
  EXPECT_EQ(result.exit_code, expected_exit_code) << result.err;
  const auto json = nlohmann::json::parse(result.out, nullptr, false);
  EXPECT_TRUE(json.is_object()) << result.out;
  if (json.is_object()) {
    EXPECT_EQ(json.value("schema_version", 0), 1);
  }
  return json;
}

std::string CheckpointRoot(const std::string& case_name) {
  return (FindDeepSpeedCase(case_name).folder / "ckpt").string();
}

}  // namespace muonstore::testutil
