// This rank's segments in their tiers.
//
// What: one arena a state kind, one block of it a flat group that has the kind.
// Ownership: owns the arenas.
// Threads: immutable after construction; the memory is the callers' to order.
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

  // Empty where the flat group does not have the kind.
  std::span<std::byte> bytes(std::string_view kind, int32_t flat_group) const;
  // The same, of a kind that is f32.
  std::span<float> f32(std::string_view kind, int32_t flat_group) const;

  std::span<const std::unique_ptr<Arena>> arenas() const { return arenas_; }

 private:
  std::vector<KindPlan> plans_;
  std::vector<std::unique_ptr<Arena>> arenas_;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_STORE_SEGMENTS_H_
