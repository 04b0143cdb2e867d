// Runs ckpt-convert for tests.
#ifndef MUONSTORE_TESTS_TOOLS_CONVERT_CLI_H_
#define MUONSTORE_TESTS_TOOLS_CONVERT_CLI_H_

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/testutil/process.h"

#include <nlohmann/json.hpp>

namespace muonstore::testutil {

ProcessResult RunConvert(std::vector<std::string> arguments);

// The one JSON object on standard output.
nlohmann::json ConvertJson(std::vector<std::string> arguments,
                           int expected_exit_code = 0);

// Every file below a folder: relative path -> bytes; folders end in "/".
std::map<std::string, std::string> Snapshot(
    const std::filesystem::path& folder);

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_TOOLS_CONVERT_CLI_H_
