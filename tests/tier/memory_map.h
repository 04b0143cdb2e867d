// What the kernel says about memory of this process.
#ifndef MUONSTORE_TESTS_TIER_MEMORY_MAP_H_
#define MUONSTORE_TESTS_TIER_MEMORY_MAP_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace muonstore {

struct MappedPart {
  uint64_t locked_bytes = 0;  // Of pages that are there and locked.
  uint64_t resident_bytes = 0;
  std::string permissions;  // "rw-p"
  std::string path;         // "/memfd:momentum (deleted)"
};

// The sums over all mappings that lie within `memory`, by /proc/self/smaps.
MappedPart LookAt(std::span<const std::byte> memory);

// False under a sanitizer, which makes mlock do nothing.
bool MlockWorks();

// VmLck of /proc/self/status.
uint64_t LockedBytes();

}  // namespace muonstore

#endif  // MUONSTORE_TESTS_TIER_MEMORY_MAP_H_
