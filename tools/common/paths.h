// Where a path lies, links resolved.
//
// Ownership, threads: pure functions. Failures: Error(kUnavailable) where the
// system does not tell.

#ifndef MUONSTORE_TOOLS_COMMON_PATHS_H_
#define MUONSTORE_TOOLS_COMMON_PATHS_H_

#include <filesystem>
#include <string>

namespace muonstore::tools {

// With links resolved as far as the path exists: two names of one folder must
// not pass for two folders.
std::filesystem::path Canonical(const std::string& path);

// Both are canonical.
bool IsInsideOrEqual(const std::filesystem::path& path,
                     const std::filesystem::path& folder);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_COMMON_PATHS_H_
