#include "src/tier/memory_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

#include "src/base/str.h"

namespace muonstore::tier {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// The first number in `text`; none for "max".
std::optional<uint64_t> FirstNumber(std::string_view text) {
  const size_t start = text.find_first_of("0123456789");
  if (start == std::string_view::npos) {
    return std::nullopt;
  }
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  if (std::from_chars(text.data() + start, end, value).ec != std::errc()) {
    return std::nullopt;
  }
  return value;
}

// The number behind `key` at the start of a line of a file of /proc.
std::optional<uint64_t> NumberOf(const std::string& path,
                                 std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with(key)) {
      return FirstNumber(std::string_view(line).substr(key.size()));
    }
  }
  return std::nullopt;
}

std::optional<uint64_t> NumberIn(const std::string& path) {
  return NumberOf(path, "");
}

// The two versions of control groups name the same things differently.
struct GroupFiles {
  std::string_view mount;
  std::string_view limit;
  std::string_view usage;
  std::string_view reclaimable;
};
constexpr GroupFiles kVersion2 = {"", "memory.max", "memory.current",
                                  "inactive_file "};
constexpr GroupFiles kVersion1 = {"/memory", "memory.limit_in_bytes",
                                  "memory.usage_in_bytes",
                                  "total_inactive_file "};

uint64_t LeftInGroup(const std::string& folder, const GroupFiles& names) {
  const auto limit = NumberIn(StrCat(folder, "/", names.limit));
  const auto usage = NumberIn(StrCat(folder, "/", names.usage));
  if (!limit || !usage) {
    return kUnlimited;
  }
  // The page cache of the group goes when memory is short.
  const uint64_t reclaimable =
      NumberOf(StrCat(folder, "/memory.stat"), names.reclaimable).value_or(0);
  const uint64_t used = *usage - std::min(*usage, reclaimable);
  return *limit - std::min(*limit, used);
}

// Of a group and all of its parents. In a container the group's path may not
// exist below the mount, whose root then is the container's group.
uint64_t LeftInGroups(const std::string& root, std::string path,
                      const GroupFiles& names) {
  uint64_t left = LeftInGroup(StrCat(root, names.mount), names);
  while (path.size() > 1) {
    left = std::min(left, LeftInGroup(StrCat(root, names.mount, path), names));
    path.resize(path.rfind('/'));
  }
  return left;
}

uint64_t LeftInControlGroups(const MemoryFiles& files) {
  uint64_t left = kUnlimited;
  std::ifstream groups(StrCat(files.proc, "/self/cgroup"));
  std::string line;
  while (std::getline(groups, line)) {
    const size_t path = line.find(":/");
    if (path == std::string::npos) {
      continue;
    }
    if (line.starts_with("0::")) {
      left = std::min(
          left, LeftInGroups(files.cgroup, line.substr(path + 1), kVersion2));
    } else if (line.find(":memory:") != std::string::npos) {
      left = std::min(
          left, LeftInGroups(files.cgroup, line.substr(path + 1), kVersion1));
    }
  }
  return left;
}

}  // namespace

uint64_t AvailableMemoryBytes(const MemoryFiles& files) {
  const auto available_kib =
      NumberOf(StrCat(files.proc, "/meminfo"), "MemAvailable:");
  const uint64_t available = available_kib ? *available_kib * 1024 : kUnlimited;
  return std::min(available, LeftInControlGroups(files));
}

LockLimit ReadLockLimit(const MemoryFiles& files) {
  rlimit limit{};
  LockLimit result;
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    result.limit_bytes = limit.rlim_cur;
  }
  result.locked_bytes =
      NumberOf(StrCat(files.proc, "/self/status"), "VmLck:").value_or(0) * 1024;
  return result;
}

}  // namespace muonstore::tier
