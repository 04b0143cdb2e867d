// Runs ckpt-inspect for tests.
#ifndef MUONSTORE_TESTS_TOOLS_CLI_H_
#define MUONSTORE_TESTS_TOOLS_CLI_H_

#include <string>
#include <vector>

#include "tests/testutil/process.h"

#include <nlohmann/json.hpp>

namespace muonstore::testutil {

// The program with these arguments.
ProcessResult Inspect(std::vector<std::string> arguments,
                      const ProcessOptions& options = {});

// The one JSON object on standard output; fails the test if there is more.
nlohmann::json InspectJson(std::vector<std::string> arguments,
                           int expected_exit_code = 0);

// <case>/ckpt of the `deepspeed` fixtures.
std::string CheckpointRoot(const std::string& case_name);

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_TOOLS_CLI_H_
