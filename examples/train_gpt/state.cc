#include "examples/train_gpt/state.h"

#include <cstdio>
#include <string>

#include "examples/train_gpt/tiers.h"
#include "muonstore/torch.h"

namespace train_gpt {
namespace {

using muonstore::MatrixLayout;

MatrixLayout LayoutOf(const NamedTensor& weight, const Flags& flags) {
  if (!weight.name.ends_with("qkv.weight") ||
      flags.optimizer.qkv == QkvLayout::kWhole) {
    return MatrixLayout::Whole();
  }
  const int64_t dim = flags.model.dim;
  return flags.optimizer.qkv == QkvLayout::kPacked
             ? MatrixLayout::PackedRows({dim, dim, dim})
             : MatrixLayout::PerHead(3 * flags.model.num_heads);
}

std::vector<muonstore::ParameterSpec> SpecsOf(
    const std::vector<NamedTensor>& weights, const Flags& flags) {
  std::vector<muonstore::ParameterSpec> specs;
  for (const NamedTensor& weight : weights) {
    const bool muon = TakesMuon(weight);
    specs.push_back({
        .name = weight.name,
        .shape = muonstore::ShapeOf(weight.tensor),
        .weight_dtype =
            flags.model.bf16 ? muonstore::DType::kBF16 : muonstore::DType::kF32,
        .group = muon ? kMuonGroup : kAdamGroup,
        .optimizer =
            muon ? muonstore::Optimizer::kMuon : muonstore::Optimizer::kAdam,
        .layout = LayoutOf(weight, flags),
    });
  }
  return specs;
}

}  // namespace

std::unique_ptr<muonstore::StateStore> MakeStore(
    const Flags& flags, const std::vector<NamedTensor>& weights,
    const std::shared_ptr<muonstore::Communicator>& communicator) {
  const auto specs = SpecsOf(weights, flags);
  const auto cut = muonstore::Partitioning::Build(
      specs, {.stage = flags.stage, .num_ranks = flags.num_ranks});
  const muonstore::TierPolicy tiers = ChooseTiers(flags.tiers, specs, cut);
  if (*flags.rank == 0) {
    std::printf("%s\n", DescribeTiers(tiers, specs, cut).c_str());
  }
  auto store = std::make_unique<muonstore::StateStore>(
      specs, cut,
      muonstore::StoreOptions{.communicator = communicator, .tiers = tiers});
  store->record().convention = flags.optimizer.accumulate
                                   ? muonstore::MomentumConvention::kAccumulate
                                   : muonstore::MomentumConvention::kLerp;
  for (const NamedTensor& weight : weights) {
    const auto values = muonstore::FloatsOf(weight.tensor);
    store->Set(weight.name, std::string(muonstore::kMaster), values);
    store->Set(weight.name, std::string(muonstore::kWeight), values);
  }
  return store;
}

}  // namespace train_gpt
