#include "tests/testutil/fixtures.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace muonstore::testutil {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> SortedFolders(const fs::path& parent) {
  std::vector<fs::path> folders;
  if (!fs::is_directory(parent)) return folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace

fs::path RepositoryData() {
  return fs::path(MUONSTORE_SOURCE_DIR) / "tests" / "data";
}

std::vector<fs::path> FixtureRoots() {
  std::vector<fs::path> roots;
  // Tests that read the environment do not change it.
  const char* set =
      std::getenv("MUONSTORE_FIXTURES");  // NOLINT(concurrency-mt-unsafe)
  if (set != nullptr && *set != '\0') {
    roots.emplace_back(set);
    if (!fs::is_directory(roots.back())) {
      throw std::runtime_error("MUONSTORE_FIXTURES names no directory: " +
                               roots.back().string());
    }
  }
  const fs::path beside =
      fs::path(MUONSTORE_SOURCE_DIR).parent_path() / "shared" / "fixtures";
  if (roots.empty() && fs::is_directory(beside)) roots.push_back(beside);
  // Naming the repository's own leaves out the larger set.
  if (roots.empty() || !fs::equivalent(roots.front(), RepositoryData())) {
    roots.push_back(RepositoryData());
  }
  return roots;
}

fs::path FixturePath(std::string_view relative) {
  for (const fs::path& root : FixtureRoots()) {
    if (fs::exists(root / relative)) return root / relative;
  }
  throw std::runtime_error("no fixture root holds " + std::string(relative));
}

std::vector<DeepSpeedCase> DeepSpeedCases() {
  std::map<std::string, fs::path> by_name;
  for (const fs::path& root : FixtureRoots()) {
    for (const fs::path& folder : SortedFolders(root / "deepspeed")) {
      by_name.try_emplace(folder.filename().string(), folder);
    }
  }
  std::vector<DeepSpeedCase> cases;
  cases.reserve(by_name.size());
  for (const auto& [name, folder] : by_name) cases.push_back({name, folder});
  return cases;
}

DeepSpeedCase FindDeepSpeedCase(std::string_view name) {
  return {std::string(name), FixturePath("deepspeed/" + std::string(name))};
}

std::string DeepSpeedTag::ToString() const {
  return case_name + "/" + root_name + "/" + tag;
}

std::ostream& operator<<(std::ostream& out, const DeepSpeedCase& one) {
  return out << one.name;
}

std::ostream& operator<<(std::ostream& out, const DeepSpeedTag& tag) {
  return out << tag.ToString();
}

std::vector<DeepSpeedTag> DeepSpeedTags() {
  std::vector<DeepSpeedTag> tags;
  for (const DeepSpeedCase& one : DeepSpeedCases()) {
    for (const char* root_name : {"ckpt", "ckpt_resaved"}) {
      for (const fs::path& tag : SortedFolders(one.folder / root_name)) {
        tags.push_back(
            {one.name, one.folder, root_name, tag.filename().string()});
      }
    }
  }
  return tags;
}

std::string TestName(std::string_view text) {
  std::string name;
  for (char c : text) {
    if (c == '+') {
      name += "_and_";
    } else {
      const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
      name += plain ? c : '_';
    }
  }
  return name;
}

}  // namespace muonstore::testutil
