#include "src/tier/arena_layout.h"

#include <limits>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::tier {
namespace {

// What a span and a file offset can hold.
constexpr uint64_t kMaxBytes = std::numeric_limits<int64_t>::max();

uint64_t RoundUp(uint64_t bytes) {
  return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

}  // namespace

ArenaLayout::ArenaLayout(const ArenaOptions& options)
    : name_(options.name),
      block_bytes_(options.block_bytes),
      num_slots_(options.num_slots) {
  if (num_slots_ < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("arena ", name_, ": ", num_slots_,
                       " slots a block; it needs one at least"));
  }
  const auto num_slots = static_cast<uint64_t>(num_slots_);
  block_offsets_.reserve(block_bytes_.size());
  for (const uint64_t bytes : block_bytes_) {
    block_offsets_.push_back(total_bytes_);
    if (bytes > kMaxBytes - kBlockAlignment ||
        RoundUp(bytes) > (kMaxBytes - total_bytes_) / num_slots) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("arena ", name_, ": a block of ", bytes, " bytes in ",
                         num_slots_, " slots is more than can be addressed"));
    }
    total_bytes_ += RoundUp(bytes) * num_slots;
  }
}

void ArenaLayout::RequireSlot(int32_t block, int32_t slot) const {
  const auto num_blocks = static_cast<int64_t>(block_bytes_.size());
  if (block < 0 || block >= num_blocks || slot < 0 || slot >= num_slots_) {
    throw Error(
        ErrorCode::kInvalidArgument,
        StrCat("arena ", name_, " has no block ", block, " slot ", slot,
               ": it has ", num_blocks, " blocks of ", num_slots_, " slots"));
  }
}

uint64_t ArenaLayout::block_bytes(int32_t block) const {
  RequireSlot(block, 0);
  return block_bytes_[static_cast<size_t>(block)];
}

uint64_t ArenaLayout::OffsetBytes(int32_t block, int32_t slot) const {
  RequireSlot(block, slot);
  const auto index = static_cast<size_t>(block);
  return block_offsets_[index] +
         RoundUp(block_bytes_[index]) * static_cast<uint64_t>(slot);
}

uint64_t ArenaLayout::OffsetBytes(const BlockRange& range,
                                  uint64_t size_bytes) const {
  const uint64_t bytes = block_bytes(range.block);
  if (range.offset_bytes > bytes || size_bytes > bytes - range.offset_bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("arena ", name_, " block ", range.block, ": ",
                       size_bytes, " bytes at ", range.offset_bytes,
                       " do not fit into its ", bytes, " bytes"));
  }
  return OffsetBytes(range.block, range.slot) + range.offset_bytes;
}

}  // namespace muonstore::tier
