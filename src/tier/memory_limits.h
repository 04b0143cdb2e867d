// How much memory this process may still take.
//
// Failures: none; what the system does not tell limits nothing.
#ifndef MUONSTORE_SRC_TIER_MEMORY_LIMITS_H_
#define MUONSTORE_SRC_TIER_MEMORY_LIMITS_H_

#include <cstdint>
#include <string>

namespace muonstore::tier {

// Where the kernel tells; tests have their own.
struct MemoryFiles {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
};

// The least of the system's available memory and what the control groups of
// this process leave (version 1 or 2, with all their parents).
uint64_t AvailableMemoryBytes(const MemoryFiles& files = {});

// What mlock may still lock under RLIMIT_MEMLOCK, and the limit itself.
struct LockLimit {
  uint64_t limit_bytes = 0;
  uint64_t locked_bytes = 0;

  uint64_t left_bytes() const {
    return limit_bytes > locked_bytes ? limit_bytes - locked_bytes : 0;
  }
};
LockLimit ReadLockLimit(const MemoryFiles& files = {});

}  // namespace muonstore::tier

#endif  // MUONSTORE_SRC_TIER_MEMORY_LIMITS_H_
