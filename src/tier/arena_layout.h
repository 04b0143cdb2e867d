// Where the slots of an arena's blocks lie, one behind the other.
//
// Failures: Error(kInvalidArgument) for options that make no sense and ranges
//   outside of their block.
#ifndef MUONSTORE_SRC_TIER_ARENA_LAYOUT_H_
#define MUONSTORE_SRC_TIER_ARENA_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "muonstore/tier.h"

namespace muonstore::tier {

constexpr uint64_t kBlockAlignment = 4096;

class ArenaLayout {
 public:
  explicit ArenaLayout(const ArenaOptions& options);

  const std::string& name() const { return name_; }
  // A multiple of kBlockAlignment; 0 for an arena of empty blocks.
  uint64_t total_bytes() const { return total_bytes_; }
  uint64_t block_bytes(int32_t block) const;
  // Of a slot, from the start of the arena.
  uint64_t OffsetBytes(int32_t block, int32_t slot) const;
  // Of a range of `size_bytes`, which must lie within its slot.
  uint64_t OffsetBytes(const BlockRange& range, uint64_t size_bytes) const;

 private:
  void RequireSlot(int32_t block, int32_t slot) const;

  std::string name_;
  std::vector<uint64_t> block_bytes_;
  std::vector<uint64_t> block_offsets_;
  int32_t num_slots_;
  uint64_t total_bytes_ = 0;
};

}  // namespace muonstore::tier

#endif  // MUONSTORE_SRC_TIER_ARENA_LAYOUT_H_
