// What a store will cost on one rank.
#include <string>
#include <utility>

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

}  // namespace

StoreEstimate StateStore::Estimate(std::span<const ParameterSpec> parameters,
                                   const Partitioning& partitioning,
                                   int32_t rank, const StoreOptions& options) {
  RequireStorable(parameters, partitioning);
  const TierPolicy tiers =
      WithDefaultTiers(options.tiers, partitioning.num_ranks());
  StoreEstimate estimate{.rank = rank};
  for (const KindPlan& plan : PlanKinds(parameters, partitioning, tiers)) {
    const Tier& tier = *tiers.of(std::string(plan.kind)).tier;
    estimate.kinds.push_back({.kind = std::string(plan.kind),
                              .tier = std::string(tier.name()),
                              .bytes = tier.ArenaBytes(plan.arena)});
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    estimate.parameters.push_back(
        {.name = parameters[i].name,
         .bytes = ElementsOn(partitioning, static_cast<int32_t>(i), rank) *
                  BytesPerElement(parameters[i])});
  }
  return estimate;
}

}  // namespace muonstore
