#include "tests/partition/random_model.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace muonstore {
namespace {

// 0 and `size` with some places between them, ascending.
std::vector<int64_t> RandomPlaces(Random& random, int64_t size,
                                  int64_t max_parts) {
  std::vector<int64_t> places = {0, size};
  for (int64_t i = random.Pick(1, max_parts); i > 1; --i) {
    places.push_back(random.Pick(0, size));
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

// Gives each fragment a place behind the last one of its segment.
void PlaceInSegments(Random& random, int32_t num_segments,
                     std::vector<Fragment>& fragments) {
  std::vector<int64_t> ends(static_cast<size_t>(num_segments), 0);
  for (size_t i = fragments.size(); i > 1; --i) {
    const auto other = random.Pick(0, static_cast<int64_t>(i) - 1);
    std::swap(fragments[i - 1], fragments[static_cast<size_t>(other)]);
  }
  for (Fragment& fragment : fragments) {
    fragment.segment = static_cast<int32_t>(random.Pick(0, num_segments - 1));
    int64_t& end = ends[static_cast<size_t>(fragment.segment)];
    fragment.segment_offset = end + (random.Chance(30) ? 3 : 0);
    end = fragment.segment_offset + fragment.num_elements();
  }
}

}  // namespace

std::vector<int64_t> RandomDims(Random& random) {
  std::vector<int64_t> dims;
  const int64_t rank = random.Pick(0, 4);
  for (int64_t i = 0; i < rank; ++i) {
    dims.push_back(random.Chance(6) ? 0 : random.Pick(1, rank == 1 ? 40 : 7));
  }
  return dims;
}

std::vector<ParameterSpec> RandomSpecs(Random& random) {
  constexpr DType kDTypes[] = {DType::kBF16, DType::kF32, DType::kF16,
                               DType::kF64};
  const int64_t num_groups = random.Pick(1, 3);
  std::vector<Optimizer> optimizers;
  for (int64_t group = 0; group < num_groups; ++group) {
    optimizers.push_back(random.Chance(60) ? Optimizer::kMuon
                                           : Optimizer::kAdam);
  }
  std::vector<ParameterSpec> specs;
  for (int64_t i = random.Pick(0, 12); i > 0; --i) {
    ParameterSpec spec;
    spec.name = "p" + std::to_string(i);
    spec.shape = Shape(RandomDims(random));
    spec.weight_dtype = kDTypes[random.Pick(0, std::size(kDTypes) - 1)];
    spec.group = static_cast<int32_t>(random.Pick(0, num_groups - 1));
    spec.optimizer = random.Chance(10)
                         ? Optimizer::kNone
                         : optimizers[static_cast<size_t>(spec.group)];
    specs.push_back(spec);
  }
  return specs;
}

ZeroRule RandomRule(Random& random, int32_t stage) {
  ZeroRule rule;
  rule.stage = stage;
  rule.num_ranks = static_cast<int32_t>(
      random.Chance(10) ? random.Pick(100, 300) : random.Pick(1, 17));
  rule.muon_order =
      random.Chance(50) ? MuonOrder::kSortedByShape : MuonOrder::kAsGiven;
  rule.flat_alignment_elements = random.Chance(70) ? 2 : random.Pick(1, 9);
  rule.round_robin = random.Chance(30);
  rule.parameter_alignment = random.Chance(30);
  rule.sub_group_size = random.Chance(50) ? random.Pick(1, 60) : 1'000'000'000;
  rule.whole_rows = stage == 3 && random.Chance(40);
  return rule;
}

std::vector<oracle::Parameter> ForOracle(std::span<const ParameterSpec> specs) {
  std::vector<oracle::Parameter> parameters;
  for (const ParameterSpec& spec : specs) {
    parameters.push_back({.dims = spec.shape.dims(),
                          .item_bytes = SizeBytes(spec.weight_dtype),
                          .group = spec.group,
                          .is_trained = spec.optimizer != Optimizer::kNone,
                          .is_muon = spec.optimizer == Optimizer::kMuon});
  }
  return parameters;
}

oracle::Rule ForOracle(const ZeroRule& rule) {
  return {.stage = rule.stage,
          .num_ranks = rule.num_ranks,
          .sort_muon = rule.muon_order == MuonOrder::kSortedByShape,
          .alignment = rule.flat_alignment_elements,
          .round_robin = rule.round_robin,
          .align_parameters = rule.parameter_alignment,
          .sub_group_size = rule.sub_group_size,
          .whole_rows = rule.whole_rows};
}

std::vector<Fragment> RandomCuts(Random& random, int64_t num_elements,
                                 int32_t num_segments) {
  const std::vector<int64_t> places = RandomPlaces(random, num_elements, 9);
  std::vector<Fragment> fragments;
  for (size_t i = 1; i < places.size(); ++i) {
    fragments.push_back(
        {.tensor_offset = places[i - 1], .length = places[i] - places[i - 1]});
  }
  PlaceInSegments(random, num_segments, fragments);
  return fragments;
}

std::vector<Fragment> RandomMesh(Random& random, const Box& tensor) {
  const std::vector<int64_t> planes = RandomPlaces(random, tensor.planes, 3);
  const std::vector<int64_t> rows = RandomPlaces(random, tensor.rows, 4);
  const std::vector<int64_t> cols = RandomPlaces(random, tensor.cols, 4);
  std::vector<Fragment> fragments;
  for (int64_t plane = 0; plane < tensor.planes; ++plane) {
    for (size_t r = 1; r < rows.size(); ++r) {
      for (size_t c = 1; c < cols.size(); ++c) {
        const int64_t row = plane * tensor.rows + rows[r - 1];
        fragments.push_back({.tensor_offset = row * tensor.cols + cols[c - 1],
                             .length = cols[c] - cols[c - 1],
                             .count = rows[r] - rows[r - 1],
                             .stride = tensor.cols});
      }
    }
  }
  PlaceInSegments(random, static_cast<int32_t>(planes.size() + 1), fragments);
  return fragments;
}

}  // namespace muonstore
