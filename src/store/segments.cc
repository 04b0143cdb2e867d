#include "src/store/segments.h"

#include <algorithm>
#include <string>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

KindPlan PlanKind(std::string_view kind,
                  std::span<const ParameterSpec> parameters,
                  const Partitioning& partitioning, const TierPolicy& tiers) {
  KindPlan plan{.kind = kind};
  plan.arena.name = std::string(kind);
  plan.arena.pinning = tiers.of(std::string(kind)).pinning;
  for (const FlatGroup& group : partitioning.groups()) {
    int32_t block = -1;
    if (!group.parameters.empty()) {
      const ParameterSpec& first =
          parameters[static_cast<size_t>(group.parameters.front())];
      if (HasKind(first.optimizer, kind)) {
        block = static_cast<int32_t>(plan.arena.block_bytes.size());
        plan.arena.block_bytes.push_back(
            static_cast<uint64_t>(group.partition_elements) *
            static_cast<uint64_t>(SizeBytes(StoreDType(first, kind))));
      }
    }
    plan.block_of.push_back(block);
  }
  return plan;
}

}  // namespace

std::vector<KindPlan> PlanKinds(std::span<const ParameterSpec> parameters,
                                const Partitioning& partitioning,
                                const TierPolicy& tiers) {
  std::vector<KindPlan> plans;
  for (const std::string_view kind : kStoreKinds) {
    KindPlan plan = PlanKind(kind, parameters, partitioning, tiers);
    if (!plan.arena.block_bytes.empty()) plans.push_back(std::move(plan));
  }
  return plans;
}

Segments::Segments(std::vector<KindPlan> plans, const TierPolicy& tiers)
    : plans_(std::move(plans)) {
  for (const KindPlan& plan : plans_) {
    Tier& tier = *tiers.of(std::string(plan.kind)).tier;
    if (!tier.addressable()) {
      throw Error(ErrorCode::kUnsupported,
                  StrCat("the ", tier.name(),
                         " tier is not memory; a store needs a host tier for ",
                         plan.kind));
    }
    arenas_.push_back(tier.CreateArena(plan.arena));
  }
}

Segments::Place Segments::PlaceOf(std::string_view kind,
                                  int32_t flat_group) const {
  for (size_t i = 0; i < plans_.size(); ++i) {
    if (plans_[i].kind != kind) continue;
    const int32_t block = plans_[i].block_of[static_cast<size_t>(flat_group)];
    if (block >= 0) return {arenas_[i].get(), block};
  }
  return {};
}

bool Segments::has(std::string_view kind, int32_t flat_group) const {
  return PlaceOf(kind, flat_group).arena != nullptr;
}

bool Segments::addressable(std::string_view kind, int32_t flat_group) const {
  return has(kind, flat_group);
}

std::span<std::byte> Segments::bytes(std::string_view kind,
                                     int32_t flat_group) const {
  const Place place = PlaceOf(kind, flat_group);
  if (place.arena == nullptr) return {};
  return place.arena->memory(place.block, 0);
}

std::span<float> Segments::f32(std::string_view kind,
                               int32_t flat_group) const {
  const std::span<std::byte> memory = bytes(kind, flat_group);
  // Blocks begin at multiples of 4096 and hold floats from the start.
  return {reinterpret_cast<float*>(memory.data()),
          memory.size() / sizeof(float)};
}

PendingPtr Segments::Read(std::string_view kind, int32_t flat_group,
                          uint64_t offset_bytes,
                          std::span<std::byte> out) const {
  const Place place = PlaceOf(kind, flat_group);
  return place.arena->Read(
      {.block = place.block, .slot = 0, .offset_bytes = offset_bytes}, out);
}

PendingPtr Segments::Write(std::string_view kind, int32_t flat_group,
                           uint64_t offset_bytes,
                           std::span<const std::byte> data) {
  const Place place = PlaceOf(kind, flat_group);
  return place.arena->Write(
      {.block = place.block, .slot = 0, .offset_bytes = offset_bytes}, data);
}

void Segments::BeginPartialWrite(std::string_view /*kind*/,
                                 int32_t /*flat_group*/) {}

void Segments::BeginUpdate(std::string_view /*kind*/, int32_t /*flat_group*/) {}

std::span<std::byte> Segments::next_bytes(std::string_view kind,
                                          int32_t flat_group) const {
  return bytes(kind, flat_group);
}

PendingPtr Segments::WriteNext(std::string_view kind, int32_t flat_group,
                               uint64_t offset_bytes,
                               std::span<const std::byte> data) {
  return Write(kind, flat_group, offset_bytes, data);
}

void Segments::CommitUpdates() {}

void Segments::DropUpdates() {}

}  // namespace muonstore
