#include "tests/deepspeed/random_spec.h"

#include <cstdint>
#include <vector>

namespace muonstore::deepspeed {
namespace {

std::vector<int64_t> SmallDims(Random& random) {
  std::vector<int64_t> dims;
  for (int64_t i = random.Pick(0, 3); i > 0; --i) {
    dims.push_back(random.Chance(5) ? 0 : random.Pick(1, 7));
  }
  return dims;
}

void RandomParameters(Random& random, CheckpointSpec& spec) {
  const int64_t item_bytes = SizeBytes(spec.precision);
  const int64_t num_groups = random.Pick(1, 4);
  std::vector<bool> muon;
  for (int64_t g = 0; g < num_groups; ++g) {
    muon.push_back(random.Chance(60));
  }
  for (int64_t i = random.Pick(1, 10); i > 0; --i) {
    const auto group = static_cast<size_t>(random.Pick(0, num_groups - 1));
    spec.parameters.push_back({.dims = SmallDims(random),
                               .item_bytes = item_bytes,
                               .group = static_cast<int>(group),
                               .is_trained = random.Chance(85),
                               .is_muon = muon[group]});
  }
  // A run without any optimizer state writes no such checkpoint.
  spec.parameters.push_back({.dims = {random.Pick(1, 3)},
                             .item_bytes = item_bytes,
                             .group = 0,
                             .is_muon = muon[0]});
}

}  // namespace

CheckpointSpec RandomSpec(Random& random, int stage) {
  constexpr DType kPrecisions[] = {DType::kBF16, DType::kF16, DType::kF32};
  CheckpointSpec spec;
  spec.bf16_optimizer = stage == 1 && random.Chance(30);
  spec.precision =
      spec.bf16_optimizer ? DType::kBF16 : kPrecisions[random.Pick(0, 2)];
  spec.momentum_dtype = random.Chance(60) ? spec.precision : DType::kF32;
  RandomParameters(random, spec);
  spec.rule = {.stage = stage,
               .num_ranks = static_cast<int>(
                   random.Chance(8) ? random.Pick(10, 24) : random.Pick(1, 8)),
               .sort_muon = random.Chance(70)};
  spec.num_buffers = random.Pick(0, 2);
  spec.tied = random.Chance(25);
  spec.client_state = random.Chance(25);
  spec.step_is_tensor = random.Chance(25);
  spec.empty_in_groups = random.Chance(15);
  spec.state_on_empty_ranks = random.Chance(50);
  if (stage == 3) {
    spec.rule.sub_group_size =
        random.Chance(60) ? random.Pick(1, 40) : 1'000'000'000;
    spec.swapped_parity = static_cast<int>(random.Pick(-2, 1));
  } else if (!spec.bf16_optimizer) {
    spec.rule.round_robin = random.Chance(30);
    spec.rule.align_parameters = !spec.empty_in_groups && random.Chance(40);
    spec.offloaded = random.Chance(40);
    spec.elastic = random.Chance(20);
  }
  return spec;
}

std::string Describe(const CheckpointSpec& spec) {
  std::string text = "stage " + std::to_string(spec.rule.stage) + ", ranks " +
                     std::to_string(spec.rule.num_ranks);
  const auto flag = [&](bool set, const char* name) {
    text += set ? std::string(", ") + name : "";
  };
  flag(spec.bf16_optimizer, "BF16_Optimizer");
  flag(spec.offloaded, "offloaded");
  flag(spec.elastic, "elastic");
  flag(spec.rule.round_robin, "round robin");
  flag(spec.rule.align_parameters, "aligned");
  flag(spec.empty_in_groups, "empty parameters in groups");
  flag(!spec.state_on_empty_ranks, "no state on empty ranks");
  flag(spec.swapped_parity >= 0, "swapped");
  for (const oracle::Parameter& parameter : spec.parameters) {
    text += ", " + std::to_string(CountOf(parameter)) +
            (parameter.is_trained ? "" : " frozen") + " of group " +
            std::to_string(parameter.group);
  }
  return text;
}

}  // namespace muonstore::deepspeed
