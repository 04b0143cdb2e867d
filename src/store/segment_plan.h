// Which arenas a rank's segments need.
//
// What: one arena for each state kind and tier, one block of it for each flat
//   group. A kind whose tier is not memory may have two: its small segments are
//   resident, in a host tier. The sizes of segments are the same on all ranks,
//   and so is the plan.
// Threads: pure functions.

#ifndef MUONSTORE_SRC_STORE_SEGMENT_PLAN_H_
#define MUONSTORE_SRC_STORE_SEGMENT_PLAN_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "muonstore/parameter.h"
#include "muonstore/partitioning.h"
#include "muonstore/store_options.h"
#include "src/store/kinds.h"

namespace muonstore {

struct ArenaPlan {
  std::string_view kind;  // One of kStoreKinds.
  std::shared_ptr<Tier> tier;
  ArenaOptions arena;
  std::vector<int32_t> flat_groups;  // By block.
  // In a host tier for its size, though the kind's tier is not memory.
  bool resident = false;
};

// `tiers` with a tier wherever none is given: shared host memory for several
// ranks, so that peers read it in place; else pinned host memory. Kinds by
// their canonical names; Error(kInvalidArgument) for those that no store has.
TierPolicy WithDefaultTiers(const TierPolicy& tiers, int32_t num_ranks);

// In the order of kStoreKinds. `tiers` is of WithDefaultTiers.
std::vector<ArenaPlan> PlanArenas(std::span<const ParameterSpec> parameters,
                                  const Partitioning& partitioning,
                                  const TierPolicy& tiers);

struct SegmentId {
  std::string_view kind;  // One of kStoreKinds.
  int32_t flat_group = 0;
};

// All segments that a step updates, in the order in which it does: momenta, the
// state of Adam's groups, Muon's masters; weights beside their masters.
std::vector<SegmentId> StepOrder(std::span<const ParameterSpec> parameters,
                                 const Partitioning& partitioning);

// What the first concurrent snapshot adds: one more slot for the segments that
// a checkpoint always holds (kSavedKinds), in arenas of their own. In host
// tiers, of the first of `order` as many as `max_bytes` allows; 0: all.
std::vector<ArenaPlan> PlanSpares(std::span<const ArenaPlan> arenas,
                                  std::span<const SegmentId> order,
                                  uint64_t max_bytes);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_STORE_SEGMENT_PLAN_H_
