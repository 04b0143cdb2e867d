// Finds the command on a command line.
#ifndef MUONSTORE_TOOLS_CKPT_INSPECT_ARGUMENTS_H_
#define MUONSTORE_TOOLS_CKPT_INSPECT_ARGUMENTS_H_

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace muonstore::tools {

// Moves the command to the front, wherever it stands among the options. A line
// whose first word is a path gets "summary". A first word that is neither a
// command nor looks like a path is Error(kInvalidArgument).
std::vector<std::string> WithCommandFirst(const CLI::App& root,
                                          std::vector<std::string> arguments);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_INSPECT_ARGUMENTS_H_
