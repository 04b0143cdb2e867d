#include "tests/tools/convert_cli.h"

#include <gtest/gtest.h>

#include "tests/testutil/scratch.h"

namespace muonstore::testutil {

ProcessResult RunConvert(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), MUONSTORE_CKPT_CONVERT);
  return RunProcess(arguments);
}

nlohmann::json ConvertJson(std::vector<std::string> arguments,
                           int expected_exit_code) {
  arguments.emplace_back("--json");
  const ProcessResult result = RunConvert(std::move(arguments));
  EXPECT_EQ(result.exit_code, expected_exit_code) << result.err;
  const auto json = nlohmann::json::parse(result.out, nullptr, false);
  EXPECT_TRUE(json.is_object()) << result.out;
  return json;
}

std::map<std::string, std::string> Snapshot(
    const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  if (!std::filesystem::exists(folder)) return files;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name =
        std::filesystem::relative(entry.path(), folder).string();
    if (entry.is_directory()) {
      files[name + "/"] = "";
    } else {
      files[name] = ReadBytes(entry.path());
    }
  }
  return files;
}

}  // namespace muonstore::testutil
