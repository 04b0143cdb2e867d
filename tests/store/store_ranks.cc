#include "tests/store/store_ranks.h"

#include <functional>
#include <string>
#include <utility>

namespace muonstore::testutil {

void RunConnectedRanks(
    int32_t num_ranks,
    const std::function<void(std::shared_ptr<Communicator>)>& rank_function,
    const RunRanksOptions& options) {
  if (num_ranks == 1) {
    rank_function(MakeSingleCommunicator());
    return;
  }
  const std::string rendezvous = UniqueRendezvous();
  RunRanks(
      num_ranks,
      [&](int32_t rank) {
        rank_function(ConnectSharedMemory({.rank = rank,
                                           .size = num_ranks,
                                           .rendezvous = rendezvous,
                                           .timeout = options.timeout}));
      },
      options);
}

std::vector<ParameterSpec> SmallModel() {
  const auto muon = [](const char* name, Shape shape, MatrixLayout layout) {
    return ParameterSpec{.name = name,
                         .shape = std::move(shape),
                         .weight_dtype = DType::kBF16,
                         .group = 0,
                         .optimizer = Optimizer::kMuon,
                         .layout = std::move(layout)};
  };
  const auto adam = [](const char* name, Shape shape) {
    return ParameterSpec{.name = name,
                         .shape = std::move(shape),
                         .weight_dtype = DType::kF32,
                         .group = 1,
                         .optimizer = Optimizer::kAdam};
  };
  return {adam("embed.weight", Shape({11, 6})),
          muon("attn.qkv.weight", Shape({24, 8}),
               MatrixLayout::PackedRows({8, 8, 8})),
          muon("mlp.up.weight", Shape({9, 6}), MatrixLayout::Whole()),
          muon("mlp.down.weight", Shape({7, 9}), MatrixLayout::Whole()),
          muon("experts.weight", Shape({3, 5, 4}), MatrixLayout::Experts()),
          adam("norm.weight", Shape({13})),
          ParameterSpec{.name = "frozen.weight",
                        .shape = Shape({4, 4}),
                        .group = 0,
                        .optimizer = Optimizer::kNone}};
}

Partitioning Cut(const std::vector<ParameterSpec>& model, int32_t stage,
                 int32_t num_ranks) {
  return Partitioning::Build(
      model, {.stage = stage, .num_ranks = num_ranks, .sub_group_size = 60});
}

TierPolicy AllIn(std::shared_ptr<Tier> tier, uint64_t resident_below_bytes) {
  TierPolicy tiers;
  tiers.rest.tier = std::move(tier);
  tiers.rest.resident_below_bytes = resident_below_bytes;
  return tiers;
}

std::vector<float> UniqueValues(const ParameterSpec& parameter, int32_t salt) {
  // Names start at distant values; elements follow in steps of 1/4.
  const auto base = static_cast<float>(
      std::hash<std::string>{}(parameter.name) % 1000 * 1000 +
      static_cast<size_t>(salt) * 100);
  std::vector<float> values(
      static_cast<size_t>(parameter.shape.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = base + 0.25F * static_cast<float>(i);
  }
  return values;
}

}  // namespace muonstore::testutil
