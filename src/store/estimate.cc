// What a store will cost on one rank.
#include <string>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/store/segment_plan.h"
#include "src/store/store_impl.h"

namespace muonstore {
namespace {

uint64_t ElementsOn(const Partitioning& partitioning, int32_t parameter,
                    int32_t rank) {
  uint64_t elements = 0;
  const auto groups = static_cast<int32_t>(partitioning.groups().size());
  for (const Fragment& fragment : partitioning.fragments(parameter)) {
    if (fragment.segment / groups == rank) {
      elements += static_cast<uint64_t>(fragment.num_elements());
    }
  }
  return elements;
}

uint64_t BytesPerElement(const ParameterSpec& parameter) {
  uint64_t bytes = 0;
  for (const std::string_view kind : kStoreKinds) {
    if (HasKind(parameter.optimizer, kind)) {
      bytes += static_cast<uint64_t>(SizeBytes(StoreDType(parameter, kind)));
    }
  }
  return bytes;
}

std::vector<StoreEstimate::Kind> KindsOf(
    std::span<const ParameterSpec> parameters, const Partitioning& partitioning,
    const TierPolicy& tiers, const StoreOptions& options) {
  const std::vector<ArenaPlan> plans =
      PlanArenas(parameters, partitioning, tiers);
  const std::vector<ArenaPlan> spares = PlanSpares(
      plans, StepOrder(parameters, partitioning), options.max_snapshot_bytes);
  std::vector<StoreEstimate::Kind> kinds;
  for (const ArenaPlan& plan : plans) {
    StoreEstimate::Kind& kind = kinds.emplace_back();
    kind.kind = plan.kind;
    kind.tier = plan.tier->name();
    kind.bytes = plan.tier->ArenaBytes(plan.arena);
    kind.flat_groups = plan.flat_groups;
    kind.resident = plan.resident;
    for (const ArenaPlan& spare : spares) {
      if (spare.kind == plan.kind && spare.resident == plan.resident) {
        kind.snapshot_bytes = spare.tier->ArenaBytes(spare.arena);
      }
    }
  }
  return kinds;
}

}  // namespace

StoreEstimate StateStore::Estimate(std::span<const ParameterSpec> parameters,
                                   const Partitioning& partitioning,
                                   int32_t rank, const StoreOptions& options) {
  RequireStorable(parameters, partitioning);
  if (rank < 0 || rank >= partitioning.num_ranks()) {
    throw Error(ErrorCode::kInvalidArgument,
                "the partitioning has no such rank",
                {.expected = StrCat("0 to ", partitioning.num_ranks() - 1),
                 .found = StrCat(rank)});
  }
  const TierPolicy tiers =
      WithDefaultTiers(options.tiers, partitioning.num_ranks());
  StoreEstimate estimate{
      .rank = rank, .kinds = KindsOf(parameters, partitioning, tiers, options)};
  for (size_t i = 0; i < parameters.size(); ++i) {
    estimate.parameters.push_back(
        {.name = parameters[i].name,
         .bytes = ElementsOn(partitioning, static_cast<int32_t>(i), rank) *
                  BytesPerElement(parameters[i])});
  }
  return estimate;
}

}  // namespace muonstore
