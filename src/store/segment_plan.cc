#include "src/store/segment_plan.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

// An update goes to another slot where it cannot be made in place: the previous
// generation stays readable until the new one is whole.
constexpr int32_t kSlotsOfFiles = 2;

Optimizer OptimizerOf(std::span<const ParameterSpec> parameters,
                      const FlatGroup& group) {
  return parameters[static_cast<size_t>(group.parameters.front())].optimizer;
}

ArenaPlan EmptyPlan(std::string_view kind, const KindPolicy& policy,
                    const std::shared_ptr<Tier>& tier) {
  ArenaPlan plan{.kind = kind, .tier = tier};
  plan.resident = tier != policy.tier;
  plan.arena.name = plan.resident ? StrCat(kind, " (resident)") : kind;
  // There is nothing to lock of what is not memory.
  plan.arena.pinning = tier->addressable() ? policy.pinning : Pinning::kOff;
  plan.arena.num_slots =
      tier->addressable() || kind == kGradient ? 1 : kSlotsOfFiles;
  return plan;
}

void AddKind(std::string_view kind, std::span<const ParameterSpec> parameters,
             const Partitioning& partitioning, const TierPolicy& tiers,
             std::vector<ArenaPlan>& plans) {
  const KindPolicy& policy = tiers.of(std::string(kind));
  ArenaPlan plan = EmptyPlan(kind, policy, policy.tier);
  ArenaPlan resident = EmptyPlan(kind, policy, tiers.resident);
  const auto groups = partitioning.groups();
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].parameters.empty() ||
        !HasKind(OptimizerOf(parameters, groups[i]), kind)) {
      continue;
    }
    const ParameterSpec& first =
        parameters[static_cast<size_t>(groups[i].parameters.front())];
    const uint64_t bytes =
        static_cast<uint64_t>(groups[i].partition_elements) *
        static_cast<uint64_t>(SizeBytes(StoreDType(first, kind)));
    const bool is_small = bytes < policy.resident_below_bytes || bytes == 0;
    ArenaPlan& to = !policy.tier->addressable() && is_small ? resident : plan;
    to.arena.block_bytes.push_back(bytes);
    to.flat_groups.push_back(static_cast<int32_t>(i));
  }
  for (ArenaPlan* filled : {&plan, &resident}) {
    if (!filled->flat_groups.empty()) plans.push_back(std::move(*filled));
  }
}

}  // namespace

TierPolicy WithDefaultTiers(const TierPolicy& tiers, int32_t num_ranks) {
  TierPolicy filled{.resident = tiers.resident, .rest = tiers.rest};
  for (const auto& [kind, policy] : tiers.kinds) {
    const StateKind canonical = CanonicalStateKind(kind);
    if (StoreKindIndex(canonical) == kStoreKinds.size() ||
        !filled.kinds.emplace(canonical, policy).second) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("TierPolicy::kinds names ", kind,
                         ", which no store has or which it names twice"));
    }
  }
  if (filled.resident == nullptr) {
    filled.resident =
        num_ranks > 1 ? MakeSharedHostTier() : MakePinnedHostTier();
  }
  if (!filled.resident->addressable()) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("TierPolicy::resident is the ", filled.resident->name(),
                       " tier, which is not memory; give a host tier"));
  }
  const auto fill = [&](KindPolicy& policy) {
    if (policy.tier == nullptr) policy.tier = filled.resident;
  };
  fill(filled.rest);
  for (auto& [kind, policy] : filled.kinds) fill(policy);
  return filled;
}

std::vector<ArenaPlan> PlanArenas(std::span<const ParameterSpec> parameters,
                                  const Partitioning& partitioning,
                                  const TierPolicy& tiers) {
  std::vector<ArenaPlan> plans;
  for (const std::string_view kind : kStoreKinds) {
    AddKind(kind, parameters, partitioning, tiers, plans);
  }
  return plans;
}

std::vector<SegmentId> StepOrder(std::span<const ParameterSpec> parameters,
                                 const Partitioning& partitioning) {
  std::vector<SegmentId> order;
  const auto groups = partitioning.groups();
  const auto add = [&](Optimizer optimizer,
                       std::initializer_list<std::string_view> kinds) {
    for (size_t i = 0; i < groups.size(); ++i) {
      if (groups[i].parameters.empty() ||
          OptimizerOf(parameters, groups[i]) != optimizer) {
        continue;
      }
      for (const std::string_view kind : kinds) {
        order.push_back({kind, static_cast<int32_t>(i)});
      }
    }
  };
  add(Optimizer::kMuon, {kMomentum});
  add(Optimizer::kAdam, {kMaster, kExpAvg, kExpAvgSq, kWeight});
  add(Optimizer::kMuon, {kMaster, kWeight});
  return order;
}

std::vector<ArenaPlan> PlanSpares(std::span<const ArenaPlan> arenas,
                                  std::span<const SegmentId> order,
                                  uint64_t max_bytes) {
  std::vector<ArenaPlan> spares;
  for (const ArenaPlan& arena : arenas) {
    ArenaPlan spare{.kind = arena.kind,
                    .tier = arena.tier,
                    .arena = {.name = StrCat(arena.arena.name, " (spare)"),
                              .num_slots = 1,
                              .pinning = arena.arena.pinning},
                    .resident = arena.resident};
    spares.push_back(std::move(spare));
  }
  uint64_t host_bytes = 0;
  for (const SegmentId& id : order) {
    if (!IsSavedKind(id.kind)) continue;
    for (size_t i = 0; i < arenas.size(); ++i) {
      const auto& groups = arenas[i].flat_groups;
      const auto at = std::find(groups.begin(), groups.end(), id.flat_group);
      if (arenas[i].kind != id.kind || at == groups.end()) continue;
      const uint64_t bytes =
          arenas[i].arena.block_bytes[static_cast<size_t>(at - groups.begin())];
      if (arenas[i].tier->addressable()) {
        if (max_bytes != 0 && bytes > max_bytes - host_bytes) continue;
        host_bytes += bytes;
      }
      spares[i].arena.block_bytes.push_back(bytes);
      spares[i].flat_groups.push_back(id.flat_group);
    }
  }
  std::erase_if(spares,
                [](const ArenaPlan& plan) { return plan.flat_groups.empty(); });
  return spares;
}

}  // namespace muonstore
