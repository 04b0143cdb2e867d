#include "tests/tier/memory_map.h"

#include <sys/mman.h>

#include <fstream>
#include <sstream>
#include <vector>

namespace muonstore {
namespace {

// "7f00-7f80 rw-p 00000000 00:01 5 /memfd:x (deleted)"; false for other lines.
bool ParseMapping(const std::string& line, uint64_t& begin, uint64_t& end,
                  MappedPart& part) {
  std::istringstream in(line);
  char dash = 0;
  std::string skipped;
  if (!(in >> std::hex >> begin >> dash >> end >> part.permissions) ||
      dash != '-') {
    return false;
  }
  in >> skipped >> skipped >> skipped >> std::ws;
  std::getline(in, part.path);
  return true;
}

}  // namespace

MappedPart LookAt(std::span<const std::byte> memory) {
  const auto first = reinterpret_cast<uintptr_t>(memory.data());
  const uintptr_t last = first + memory.size();
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  MappedPart sum;
  bool inside = false;
  while (std::getline(smaps, line)) {
    MappedPart part;
    uint64_t begin = 0;
    uint64_t end = 0;
    if (ParseMapping(line, begin, end, part)) {
      inside = begin >= first && end <= last;
      if (inside) {
        sum.permissions = part.permissions;
        sum.path = part.path;
      }
    } else if (inside && line.starts_with("Locked:")) {
      sum.locked_bytes += std::stoull(line.substr(7)) * 1024;
    } else if (inside && line.starts_with("Rss:")) {
      sum.resident_bytes += std::stoull(line.substr(4)) * 1024;
    }
  }
  return sum;
}

bool MlockWorks() {
  const std::vector<std::byte> memory(4096);
  const uint64_t before = LockedBytes();
  (void)::mlock(memory.data(), memory.size());
  const bool works = LockedBytes() > before;
  (void)::munlock(memory.data(), memory.size());
  return works;
}

uint64_t LockedBytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmLck:")) {
      return std::stoull(line.substr(6)) * 1024;
    }
  }
  return 0;
}

}  // namespace muonstore
