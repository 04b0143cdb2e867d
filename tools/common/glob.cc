#include "tools/common/glob.h"

#include <fnmatch.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

namespace muonstore::tools {
namespace {

// Longer names are compared by their first characters: enough for a hint.
constexpr size_t kMaxLength = 128;

// Insertions, deletions and replacements from one text to the other.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

bool GlobMatches(const std::string& pattern, const std::string& name) {
  return pattern == name || ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

std::vector<std::string> NearNames(const std::string& wanted,
                                   std::span<const std::string> names,
                                   size_t limit) {
  std::string text = wanted.substr(0, kMaxLength);
  std::erase_if(text, [](char c) { return c == '*' || c == '?'; });
  std::set<std::pair<size_t, std::string>> best;
  for (const std::string& name : names) {
    // A part of a name that was typed right counts as near.
    const bool contains = !text.empty() && name.find(text) != std::string::npos;
    const size_t distance =
        contains ? 0 : EditDistance(text, name.substr(0, kMaxLength));
    best.emplace(distance, name);
    if (best.size() > limit) best.erase(std::prev(best.end()));
  }
  std::vector<std::string> out;
  out.reserve(best.size());
  for (const auto& [distance, name] : best) out.push_back(name);
  return out;
}

}  // namespace muonstore::tools
