#include "tools/common/paths.h"

#include <algorithm>
#include <system_error>

#include "muonstore/error.h"

namespace muonstore::tools {

std::filesystem::path Canonical(const std::string& path) {
  std::error_code error;
  std::filesystem::path resolved =
      std::filesystem::weakly_canonical(std::filesystem::absolute(path), error);
  if (error) {
    throw Error(ErrorCode::kUnavailable, error.message(), {.file = path});
  }
  return resolved.has_filename() ? resolved : resolved.parent_path();
}

bool IsInsideOrEqual(const std::filesystem::path& path,
                     const std::filesystem::path& folder) {
  const auto [at, end] =
      std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return at == folder.end();
}

}  // namespace muonstore::tools
