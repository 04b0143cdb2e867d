#include "formats/native/file_names.h"

#include <algorithm>
#include <array>
#include <utility>

#include "formats/native/hash.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

constexpr size_t kRankDigits = 5;
constexpr size_t kIdDigits = 16;
constexpr std::string_view kRank = "rank-";
constexpr std::string_view kCarried = "carried-";
constexpr std::string_view kChecksums = "checksums.";
constexpr std::string_view kStagedView = "checkpoint.";
constexpr std::string_view kHdf5 = ".h5";
constexpr std::string_view kTorch = ".pt";

std::string Numbered(std::string_view prefix, int32_t rank,
                     std::string_view save_id, std::string_view suffix) {
  std::string number = StrCat(rank);
  number.insert(0, kRankDigits - std::min(kRankDigits, number.size()), '0');
  return StrCat(prefix, number, ".", save_id, suffix);
}

bool IsNumber(std::string_view text) {
  return text.size() >= kRankDigits &&
         text.find_first_not_of("0123456789") == text.npos;
}

std::string_view IfId(std::string_view text) {
  return ParseHex(text) ? text : std::string_view();
}

// "<prefix><number>.<id><suffix>"
std::string_view IdOfNumbered(std::string_view name, std::string_view prefix,
                              std::string_view suffix) {
  if (name.size() <
          prefix.size() + kRankDigits + 1 + kIdDigits + suffix.size() ||
      !name.starts_with(prefix) || !name.ends_with(suffix)) {
    return {};
  }
  name.remove_prefix(prefix.size());
  name.remove_suffix(suffix.size());
  const size_t dot = name.size() - kIdDigits - 1;
  const bool fits = name[dot] == '.' && IsNumber(name.substr(0, dot));
  return fits ? IfId(name.substr(dot + 1)) : std::string_view();
}

// "<prefix><id><suffix>"
std::string_view IdOfSingle(std::string_view name, std::string_view prefix,
                            std::string_view suffix) {
  if (name.size() != prefix.size() + kIdDigits + suffix.size() ||
      !name.starts_with(prefix) || !name.ends_with(suffix)) {
    return {};
  }
  return IfId(name.substr(prefix.size(), kIdDigits));
}

bool HasManifest(const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), kManifestName) != names.end();
}

bool HasSavedFiles(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return !SaveIdOf(name).empty();
  });
}

}  // namespace

std::string RankFileName(int32_t rank, std::string_view save_id) {
  return Numbered(kRank, rank, save_id, kHdf5);
}

std::string CarriedFileName(int32_t rank, std::string_view save_id) {
  return Numbered(kCarried, rank, save_id, kTorch);
}

std::string ChecksumsName(std::string_view save_id) {
  return StrCat(kChecksums, save_id);
}

std::string StagedManifestName(std::string_view save_id) {
  return StrCat(kManifestName, ".", save_id);
}

std::string StagedViewName(std::string_view save_id) {
  return StrCat(kStagedView, save_id, kHdf5);
}

std::string SaveIdOf(std::string_view name) {
  for (const auto& [prefix, suffix] :
       {std::pair(kRank, kHdf5), std::pair(kCarried, kTorch)}) {
    const std::string_view id = IdOfNumbered(name, prefix, suffix);
    if (!id.empty()) {
      return std::string(id);
    }
  }
  for (const auto& [prefix, suffix] :
       {std::pair(kChecksums, std::string_view()),
        std::pair(std::string_view("manifest.json."), std::string_view()),
        std::pair(kStagedView, kHdf5)}) {
    const std::string_view id = IdOfSingle(name, prefix, suffix);
    if (!id.empty()) {
      return std::string(id);
    }
  }
  return {};
}

bool IsTagDirectory(const std::vector<std::string>& names) {
  return HasManifest(names) && HasSavedFiles(names);
}

bool IsUncommittedTag(const std::vector<std::string>& names) {
  return !HasManifest(names) && HasSavedFiles(names);
}

}  // namespace muonstore::native
