// This rank's segments in their tiers.
//
// What: a segment is a block of an arena with one slot or more, and perhaps a
//   spare slot in an arena that was made for snapshots. It is read and written
//   through Read and Write on any tier; in host tiers it is memory as well. A
//   step writes the next generation of whole segments: BeginUpdate says where,
//   CommitUpdates makes it current; the address of a segment changes then. A
//   lease writes parts: BeginPartialWrite, then Write. Neither touches a
//   generation that a snapshot pins: the update goes to a free slot, or waits.
// Ownership: owns the arenas. Pins refer to this.
// Threads: Pin, reads of what is pinned and waited_s: any. The rest is ordered
//   by the callers: steps by their lease on everything, writers of leases and
//   snapshots by StateStore::Impl::commit_mutex.
// Failures: what the tiers throw; Error(kInternal) for segments that there are
//   not and for updates that were not begun.

#ifndef MUONSTORE_SRC_STORE_SEGMENTS_H_
#define MUONSTORE_SRC_STORE_SEGMENTS_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "muonstore/pending.h"
#include "muonstore/tier.h"
#include "src/store/segment_plan.h"
#include "src/store/slot_table.h"

namespace muonstore {

class PinnedSegment;

class Segments {
 public:
  Segments(std::span<const ArenaPlan> plans, int32_t num_flat_groups);

  bool has(std::string_view kind, int32_t flat_group) const;
  // Whether the segment is memory.
  bool addressable(std::string_view kind, int32_t flat_group) const;
  // On this rank, on any tier; 0 where the flat group does not have the kind.
  uint64_t size_bytes(std::string_view kind, int32_t flat_group) const;
  // The current generation; empty where the segment is not memory and where the
  // flat group does not have the kind.
  std::span<std::byte> bytes(std::string_view kind, int32_t flat_group) const;
  // The same, of a kind that is f32.
  std::span<float> f32(std::string_view kind, int32_t flat_group) const;

  // Of the current generation, on any tier.
  PendingPtr Read(std::string_view kind, int32_t flat_group,
                  uint64_t offset_bytes, std::span<std::byte> out) const;
  // Into the current generation, on any tier: gradients, and what follows
  // BeginPartialWrite.
  PendingPtr Write(std::string_view kind, int32_t flat_group,
                   uint64_t offset_bytes, std::span<const std::byte> data);
  // Copies a pinned segment to another slot first, or waits. Changes nothing
  // where it throws.
  void BeginPartialWrite(std::string_view kind, int32_t flat_group);

  // See SlotTable.
  bool AwaitUpdates(std::chrono::milliseconds timeout) {
    return slots_.AwaitUpdates(timeout);
  }
  // A step will write every element of the segment. Waits where a snapshot pins
  // it and no slot is free.
  void BeginUpdate(std::string_view kind, int32_t flat_group);
  // Where the update goes: bytes() where it is made in place; empty where the
  // segment is not memory.
  std::span<std::byte> next_bytes(std::string_view kind,
                                  int32_t flat_group) const;
  PendingPtr WriteNext(std::string_view kind, int32_t flat_group,
                       uint64_t offset_bytes, std::span<const std::byte> data);
  // All that was begun becomes current, or is forgotten: what was written in
  // place stays.
  void CommitUpdates();
  void DropUpdates();

  // The current generation, which stays as it is while the pin lives.
  PinnedSegment Pin(std::string_view kind, int32_t flat_group,
                    PinPurpose purpose);
  // See SlotTable.
  int32_t updates_before_wait(std::string_view kind, int32_t flat_group) const;
  // Seconds that steps and leases waited for snapshots so far.
  double waited_s() const { return slots_.waited_s(); }

  // One more slot for the segments of the plan, from an arena that it makes.
  void AddSpares(const ArenaPlan& plan, std::unique_ptr<Arena> arena);

  // In the order in which they were made.
  std::vector<Arena*> arenas() const;

 private:
  friend class PinnedSegment;

  struct Address {
    Arena* arena = nullptr;
    int32_t block = -1;
    int32_t slot = 0;
  };
  // Slots of an NVMe segment, and a spare one.
  static constexpr size_t kMaxSlots = 3;
  struct Segment {
    uint64_t size_bytes = 0;
    bool addressable = true;
    std::array<Address, kMaxSlots> slots;
  };

  // -1 where there is none.
  int32_t Find(std::string_view kind, int32_t flat_group) const;
  int32_t Require(std::string_view kind, int32_t flat_group) const;
  const Address& AddressOf(int32_t segment, int32_t slot) const;
  std::span<std::byte> MemoryOf(int32_t segment, int32_t slot) const;
  int32_t NextSlot(int32_t segment) const;
  PendingPtr ReadSlot(int32_t segment, int32_t slot, uint64_t offset_bytes,
                      std::span<std::byte> out) const;
  PendingPtr WriteSlot(int32_t segment, int32_t slot, uint64_t offset_bytes,
                       std::span<const std::byte> data) const;
  void CopySlot(int32_t segment, int32_t from, int32_t to) const;

  size_t num_flat_groups_;
  std::vector<int32_t> index_;  // By kind and flat group.
  std::vector<Segment> segments_;
  SlotTable slots_;
  mutable std::mutex arenas_mutex_;
  std::vector<std::unique_ptr<Arena>> arenas_;
};

// One generation of a segment. Move-only; one thread at a time, except that
// Read may run on several.
class PinnedSegment {
 public:
  PinnedSegment(PinnedSegment&& other) noexcept;
  PinnedSegment& operator=(PinnedSegment&& other) noexcept;
  PinnedSegment(const PinnedSegment&) = delete;
  PinnedSegment& operator=(const PinnedSegment&) = delete;
  ~PinnedSegment();

  // Empty where the segment is not memory.
  std::span<std::byte> memory() const;
  PendingPtr Read(uint64_t offset_bytes, std::span<std::byte> out) const;

 private:
  friend class Segments;
  PinnedSegment(Segments& segments, int32_t segment, PinPurpose purpose);
  void Release();

  Segments* segments_;  // Null: moved from.
  int32_t segment_;
  int32_t slot_;
  PinPurpose purpose_;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_STORE_SEGMENTS_H_
