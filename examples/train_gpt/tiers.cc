#include "examples/train_gpt/tiers.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "muonstore/state_kind.h"
#include "muonstore/store.h"

namespace train_gpt {
namespace {

using muonstore::Partitioning;
using muonstore::StateStore;
using muonstore::StoreEstimate;
using muonstore::TierPolicy;
using Specs = std::span<const muonstore::ParameterSpec>;

// What is moved to NVMe first: read and written once a step each. The compute
// weights stay: the model reads them in each pass.
constexpr std::array<std::string_view, 5> kToNvme = {
    muonstore::kExpAvg, muonstore::kExpAvgSq, muonstore::kMomentum,
    muonstore::kMaster, muonstore::kGradient};

constexpr std::string_view kNvme = "nvme";

// The model is small; on NVMe means on NVMe.
void MoveToNvme(std::string_view kind,
                const std::shared_ptr<muonstore::Tier>& nvme,
                TierPolicy& tiers) {
  tiers.kinds[std::string(kind)] = {.tier = nvme, .resident_below_bytes = 0};
}

StoreEstimate EstimateOf(const TierPolicy& tiers, Specs specs,
                         const Partitioning& cut, int32_t rank) {
  return StateStore::Estimate(specs, cut, rank, {.tiers = tiers});
}

uint64_t MemoryBytes(const StoreEstimate& estimate) {
  uint64_t bytes = 0;
  for (const StoreEstimate::Kind& kind : estimate.kinds) {
    if (kind.tier != kNvme) bytes += kind.bytes;
  }
  return bytes;
}

// On the rank that takes most.
uint64_t MostMemory(const TierPolicy& tiers, Specs specs,
                    const Partitioning& cut) {
  uint64_t most = 0;
  for (int32_t rank = 0; rank < cut.num_ranks(); ++rank) {
    most = std::max(most, MemoryBytes(EstimateOf(tiers, specs, cut, rank)));
  }
  return most;
}

void FitIntoBudget(const TierFlags& flags, Specs specs, const Partitioning& cut,
                   TierPolicy& tiers) {
  const std::shared_ptr<muonstore::Tier> nvme =
      muonstore::MakeNvmeTier({.directory = flags.nvme_directory});
  uint64_t memory = MostMemory(tiers, specs, cut);
  for (const std::string_view kind : kToNvme) {
    if (memory <= flags.memory_budget_bytes) return;
    MoveToNvme(kind, nvme, tiers);
    memory = MostMemory(tiers, specs, cut);
  }
  if (memory > flags.memory_budget_bytes) {
    throw std::runtime_error(
        "the compute weights alone take " + std::to_string(memory) +
        " bytes of memory on a rank, more than --memory-budget: use more "
        "ranks, or --grad-dtype bf16");
  }
}

std::string Mebibytes(uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f MiB",
                static_cast<double>(bytes) / (1 << 20));
  return text.data();
}

}  // namespace

TierPolicy ChooseTiers(const TierFlags& flags, Specs specs,
                       const Partitioning& cut) {
  TierPolicy tiers;
  const bool shared = flags.tier == TierChoice::kShared ||
                      (flags.tier != TierChoice::kHost && cut.num_ranks() > 1);
  tiers.resident = shared ? muonstore::MakeSharedHostTier()
                          : muonstore::MakePinnedHostTier();
  if (flags.memory_budget_bytes > 0) {
    FitIntoBudget(flags, specs, cut, tiers);
  } else if (flags.tier == TierChoice::kNvme) {
    const std::shared_ptr<muonstore::Tier> nvme =
        muonstore::MakeNvmeTier({.directory = flags.nvme_directory});
    for (const std::string_view kind : kToNvme) MoveToNvme(kind, nvme, tiers);
  }
  return tiers;
}

std::string DescribeTiers(const TierPolicy& tiers, Specs specs,
                          const Partitioning& cut) {
  const StoreEstimate estimate = EstimateOf(tiers, specs, cut, 0);
  const uint64_t memory = MemoryBytes(estimate);
  std::string text = "state of rank 0: memory " + Mebibytes(memory) +
                     ", nvme " + Mebibytes(estimate.total_bytes() - memory);
  std::string separator = " (";
  for (const StoreEstimate::Kind& kind : estimate.kinds) {
    if (kind.tier != kNvme) continue;
    text += separator + kind.kind;
    separator = ", ";
  }
  return separator == ", " ? text + ")" : text;
}

}  // namespace train_gpt
