// Where segments live: pinned host memory, shared host memory, NVMe.
//
// What: a tier creates arenas; an arena is a list of blocks, each with one slot
//   or more of equal size. Blocks are read and written asynchronously; in the
//   host tiers they are memory that is used in place as well. A tier knows no
//   tensor: which block holds what, and which slot is current, is the store's.
// Ownership: an arena owns its memory or files and outlives nothing: destroying
//   it frees them. Nothing is left in a file system or /dev/shm, however the
//   process ends.
// Threads: reads and writes of disjoint ranges may run on many threads; the
//   rest on one. A range that is being written may not be read.
// Failures: Error(kResourceExhausted) where memory, the locked-memory limit
//   (with Pinning::kRequired) or space does not suffice, with what was asked
//   for and what there is; Error(kUnavailable) for a device that fails, and
//   kDataLoss for a file that somebody cut short, with arena, block and slot.

#ifndef MUONSTORE_TIER_H_
#define MUONSTORE_TIER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muonstore/file_system.h"
#include "muonstore/pending.h"

namespace muonstore {

enum class Pinning {
  kOff,       // Ordinary memory.
  kTry,       // Page-locked as far as the limits allow; see the report.
  kRequired,  // Page-locked, or Error(kResourceExhausted).
};

// How an arena's memory is held, for reports.
struct PinReport {
  Pinning asked = Pinning::kOff;
  // "none", "mlock", "cuda".
  std::string method = "none";
  uint64_t pinned_bytes = 0;
  uint64_t total_bytes = 0;
  // Empty, or why not all of it is pinned: "RLIMIT_MEMLOCK is 8 MiB".
  std::string shortfall;
};

struct ArenaOptions {
  // For messages and reports: "momentum".
  std::string name;
  // Bytes of each block, in order. Blocks start at multiples of 4096.
  std::vector<uint64_t> block_bytes;
  int32_t num_slots = 1;
  Pinning pinning = Pinning::kTry;
};

// A range of one slot of one block.
struct BlockRange {
  int32_t block = 0;
  int32_t slot = 0;
  uint64_t offset_bytes = 0;
};

class Arena {
 public:
  virtual ~Arena() = default;
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  virtual std::string_view name() const = 0;
  // The memory of a slot, of the block's size and zero at first; empty where
  // the tier is not memory. It never moves: filling it keeps it pinned.
  virtual std::span<std::byte> memory(int32_t block, int32_t slot) = 0;
  // All of the arena's memory with the file descriptor that maps it, for
  // communicators that let peers read it; -1 where there is none.
  virtual std::span<std::byte> all_memory() = 0;
  virtual int shared_fd() const { return -1; }

  // Copies data.size() bytes from / to the range, which may begin and end
  // anywhere, as the memory may. On NVMe, what lies in whole blocks of 4096
  // bytes and at the same distance from one in memory goes without a copy.
  virtual PendingPtr Read(const BlockRange& from, std::span<std::byte> out) = 0;
  virtual PendingPtr Write(const BlockRange& to,
                           std::span<const std::byte> data) = 0;

  virtual const PinReport& pin_report() const = 0;
};

class Tier {
 public:
  virtual ~Tier() = default;
  Tier() = default;
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  // "pinned host", "shared host", "nvme".
  virtual std::string_view name() const = 0;
  // Whether Arena::memory gives memory.
  virtual bool addressable() const = 0;
  virtual std::unique_ptr<Arena> CreateArena(const ArenaOptions& options) = 0;
  // Bytes that CreateArena would take, alignment included.
  virtual uint64_t ArenaBytes(const ArenaOptions& options) const = 0;
  // Bytes that new arenas may take together, as far as the system tells.
  virtual uint64_t available_bytes() const = 0;
  // Prepares memory that many reads and writes will use, for as long as the
  // result lives; null where the tier has no use for that.
  virtual std::unique_ptr<IoMemory> RegisterMemory(
      std::span<std::byte> /*memory*/) {
    return nullptr;
  }
};

// Anonymous memory of this process; page-locked by CUDA registration where a
// device is present, else by mlock.
std::unique_ptr<Tier> MakePinnedHostTier();
// memfd memory, which a shared-memory communicator lets peers map read-only.
std::unique_ptr<Tier> MakeSharedHostTier();

struct NvmeOptions {
  // On the disk to use. It must be there: a disk that is not mounted should not
  // be mistaken for its mount point.
  std::string directory;
  // Requests that the disk gets at once.
  int32_t queue_depth = 32;
  // Null: the operating system's, with a queue of its own.
  std::shared_ptr<FileSystem> file_system = nullptr;
};

// Scratch files in a directory, all of whose room is taken when the arena is
// made: a full disk is an error then and never later. By io_uring and around
// the page cache where the system allows; the log says where not. Processes
// that fork make their tiers afterwards.
std::unique_ptr<Tier> MakeNvmeTier(const NvmeOptions& options);

}  // namespace muonstore

#endif  // MUONSTORE_TIER_H_
