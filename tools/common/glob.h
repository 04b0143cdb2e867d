// Matching of parameter names on a command line.
//
// Threads, failures: pure functions that do not fail.

#ifndef MUONSTORE_TOOLS_COMMON_GLOB_H_
#define MUONSTORE_TOOLS_COMMON_GLOB_H_

#include <span>
#include <string>
#include <vector>

namespace muonstore::tools {

// fnmatch(3) rules; "*" matches dots and slashes, too. A name always matches
// itself, also when it holds "[" or "*".
bool GlobMatches(const std::string& pattern, const std::string& name);

// Up to `limit` different names that look most like `wanted`, best first: what
// a person may have meant.
std::vector<std::string> NearNames(const std::string& wanted,
                                   std::span<const std::string> names,
                                   size_t limit);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_COMMON_GLOB_H_
