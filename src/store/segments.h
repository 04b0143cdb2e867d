// This rank's segments in their tiers.
//
// What: one arena a state kind, one block of it a flat group that has the kind.
//   A segment is read and written through Read and Write on any tier; in host
//   tiers it is memory as well. A step writes the next generation of whole
//   segments: BeginUpdate says where, CommitUpdates makes it current.
// Ownership: owns the arenas.
// Threads: segments are the callers' to order: the executor's alone in a step.
// Failures: what the tiers throw.

#ifndef MUONSTORE_SRC_STORE_SEGMENTS_H_
#define MUONSTORE_SRC_STORE_SEGMENTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "muonstore/parameter.h"
#include "muonstore/partitioning.h"
#include "muonstore/pending.h"
#include "muonstore/store_options.h"
#include "src/store/kinds.h"

namespace muonstore {

// What one state kind needs on every rank alike.
struct KindPlan {
  std::string_view kind;
  ArenaOptions arena;
  // By flat group: index of its block, or -1.
  std::vector<int32_t> block_of;
};

// The kinds that any flat group has, in the order of kStoreKinds.
std::vector<KindPlan> PlanKinds(std::span<const ParameterSpec> parameters,
                                const Partitioning& partitioning,
                                const TierPolicy& tiers);

class Segments {
 public:
  // `tiers` has a tier for every kind of `plans`.
  Segments(std::vector<KindPlan> plans, const TierPolicy& tiers);

  bool has(std::string_view kind, int32_t flat_group) const;
  // Whether the segment is memory.
  bool addressable(std::string_view kind, int32_t flat_group) const;
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
  void BeginPartialWrite(std::string_view kind, int32_t flat_group);

  // A step will write every element of the segment.
  void BeginUpdate(std::string_view kind, int32_t flat_group);
  // Where the update goes: bytes() where it is made in place; empty where the
  // segment is not memory.
  std::span<std::byte> next_bytes(std::string_view kind,
                                  int32_t flat_group) const;
  PendingPtr WriteNext(std::string_view kind, int32_t flat_group,
                       uint64_t offset_bytes, std::span<const std::byte> data);
  // What was begun becomes the current generation, or is forgotten.
  void CommitUpdates();
  void DropUpdates();

  std::span<const std::unique_ptr<Arena>> arenas() const { return arenas_; }

 private:
  struct Place {
    Arena* arena = nullptr;
    int32_t block = -1;
  };
  Place PlaceOf(std::string_view kind, int32_t flat_group) const;

  std::vector<KindPlan> plans_;
  std::vector<std::unique_ptr<Arena>> arenas_;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_STORE_SEGMENTS_H_
