#include "muonstore/partitioning.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/partition/zero_rules.h"

namespace muonstore {
namespace {

constexpr const char* kGroupCount = "the element count of a flat group";

void CheckPads(const FlatGroup& group, int32_t stage) {
  const bool fits = group.pad_after.size() == group.parameters.size() &&
                    std::all_of(group.pad_after.begin(), group.pad_after.end(),
                                [stage](int64_t pad) {
                                  return pad == 0 || (pad > 0 && stage != 3);
                                });
  if (!fits) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("the paddings of param group ", group.group,
                       " do not fit its parameters"),
                {.expected = StrCat("one of at least 0 for each of ",
                                    group.parameters.size(),
                                    " parameters; in stage 3 only 0"),
                 .found = StrCat(group.pad_after.size(), " paddings")});
  }
}

// One padded run of all parameters, cut into equal partitions.
void LayOutWholeGroup(const std::vector<int64_t>& numel, const ZeroRule& rule,
                      FlatGroup& group) {
  int64_t position = 0;
  for (size_t k = 0; k < group.parameters.size(); ++k) {
    group.offsets.push_back(position);
    position = CheckedAdd(
        position, numel[static_cast<size_t>(group.parameters[k])], kGroupCount);
    position = CheckedAdd(position, group.pad_after[k], kGroupCount);
  }
  group.num_elements = position;
  const int64_t unit = CheckedMultiply(rule.flat_alignment_elements,
                                       rule.num_ranks, "the flat alignment");
  const int64_t computed = RoundUp(position, unit) / rule.num_ranks;
  const int64_t needed = CeilDivide(position, rule.num_ranks);
  if (group.partition_elements <= 0 || group.partition_elements < needed) {
    group.partition_elements = computed;
  }
  CheckedMultiply(group.partition_elements, rule.num_ranks,
                  "the padded size of a flat group");
}

// One piece of each parameter behind the other, the same on every rank.
void LayOutSubGroup(const std::vector<int64_t>& numel,
                    const std::vector<int64_t>& pieces, FlatGroup& group) {
  int64_t position = 0;
  for (const int32_t parameter : group.parameters) {
    const int64_t elements = numel[static_cast<size_t>(parameter)];
    group.offsets.push_back(position);
    position = CheckedAdd(position, pieces[static_cast<size_t>(parameter)],
                          "the size of a sub-group");
    group.num_elements = CheckedAdd(group.num_elements, elements, kGroupCount);
  }
  group.partition_elements = std::max(group.partition_elements, position);
}

void CheckSegmentCount(int32_t num_ranks, size_t num_groups) {
  constexpr auto kLimit =
      static_cast<size_t>(std::numeric_limits<int32_t>::max());
  if (num_groups > kLimit / static_cast<size_t>(num_ranks)) {
    throw Error(ErrorCode::kInvalidArgument,
                "too many flat partitions; use a larger sub-group size",
                {.expected = StrCat("ranks * flat groups up to ", kLimit),
                 .found = StrCat(num_ranks, " * ", num_groups)});
  }
}

}  // namespace

Partitioning Partitioning::Build(std::span<const ParameterSpec> specs,
                                 const ZeroRule& rule) {
  CheckRule(rule);
  return FromGroups(specs, rule, FormFlatGroups(specs, rule));
}

Partitioning Partitioning::FromGroups(std::span<const ParameterSpec> specs,
                                      const ZeroRule& rule,
                                      std::vector<FlatGroup> groups) {
  CheckRule(rule);
  CheckSegmentCount(rule.num_ranks, groups.size());
  Partitioning result;
  result.stage_ = rule.stage;
  result.num_ranks_ = rule.num_ranks;
  result.whole_rows_ = rule.whole_rows;
  result.groups_ = std::move(groups);
  result.numel_.reserve(specs.size());
  result.piece_.reserve(specs.size());
  for (const ParameterSpec& spec : specs) {
    result.numel_.push_back(spec.shape.num_elements());
    result.piece_.push_back(PieceElements(spec.shape, rule));
  }
  result.IndexParameters(specs);
  for (FlatGroup& group : result.groups_) {
    group.offsets.clear();
    group.offsets.reserve(group.parameters.size());
    group.num_elements = 0;
    if (group.pad_after.empty()) {
      group.pad_after.resize(group.parameters.size(), 0);
    }
    CheckPads(group, rule.stage);
    if (rule.stage == 3) {
      LayOutSubGroup(result.numel_, result.piece_, group);
    } else {
      LayOutWholeGroup(result.numel_, rule, group);
    }
  }
  return result;
}

void Partitioning::IndexParameters(std::span<const ParameterSpec> specs) {
  group_of_.assign(specs.size(), -1);
  position_in_group_.assign(specs.size(), -1);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const std::vector<int32_t>& members = groups_[g].parameters;
    for (size_t k = 0; k < members.size(); ++k) {
      const int32_t parameter = members[k];
      if (parameter < 0 || parameter >= num_parameters()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "a flat group names a parameter that does not exist",
                    {.expected = StrCat("an index below ", num_parameters()),
                     .found = std::to_string(parameter)});
      }
      const auto index = static_cast<size_t>(parameter);
      if (group_of_[index] != -1) {
        throw Error(ErrorCode::kInvalidArgument,
                    "a parameter is twice in the flat groups",
                    {.tensor = specs[index].name});
      }
      group_of_[index] = static_cast<int32_t>(g);
      position_in_group_[index] = static_cast<int32_t>(k);
    }
  }
}

Partitioning::Place Partitioning::place(int32_t parameter) const {
  const auto index = static_cast<size_t>(parameter);
  const FlatGroup& group = groups_[static_cast<size_t>(group_of_[index])];
  return {
      .partition_elements = group.partition_elements,
      .offset = group.offsets[static_cast<size_t>(position_in_group_[index])],
      .num_elements = numel_[index],
      .piece_elements = piece_[index]};
}

std::vector<Fragment> Partitioning::fragments(int32_t parameter) const {
  const int32_t flat_group = flat_group_of(parameter);
  if (flat_group < 0 || numel_[static_cast<size_t>(parameter)] == 0) {
    return {};
  }
  return stage_ == 3 ? PieceFragments(flat_group, place(parameter))
                     : CutFragments(flat_group, place(parameter));
}

std::vector<Fragment> Partitioning::CutFragments(int32_t flat_group,
                                                 const Place& place) const {
  std::vector<Fragment> result;
  const int64_t size = place.partition_elements;
  int64_t done = 0;
  while (done < place.num_elements) {
    const int64_t position = place.offset + done;
    const int64_t rank = position / size;
    const int64_t length =
        std::min(place.num_elements - done, (rank + 1) * size - position);
    result.push_back(
        {.tensor_offset = done,
         .length = length,
         .segment = segment(static_cast<int32_t>(rank), flat_group),
         .segment_offset = position - rank * size});
    done += length;
  }
  return result;
}

std::vector<Fragment> Partitioning::PieceFragments(int32_t flat_group,
                                                   const Place& place) const {
  std::vector<Fragment> result;
  int64_t done = 0;
  for (int32_t rank = 0; done < place.num_elements; ++rank) {
    const int64_t length =
        std::min(place.piece_elements, place.num_elements - done);
    result.push_back({.tensor_offset = done,
                      .length = length,
                      .segment = segment(rank, flat_group),
                      .segment_offset = place.offset});
    done += length;
  }
  return result;
}

int64_t Partitioning::tail_padding(int32_t rank, int32_t flat_group) const {
  if (stage_ == 3) {
    return 0;
  }
  const FlatGroup& group = groups_[static_cast<size_t>(flat_group)];
  const int64_t size = group.partition_elements;
  const int64_t behind = (rank + int64_t{1}) * size - group.num_elements;
  return std::clamp<int64_t>(behind, 0, size);
}

std::vector<int32_t> Partitioning::parameters_on_rank(
    int32_t rank, int32_t flat_group) const {
  const FlatGroup& group = groups_[static_cast<size_t>(flat_group)];
  return stage_ == 3 ? PiecesOnRank(rank, group) : CutsOnRank(rank, group);
}

std::vector<int32_t> Partitioning::CutsOnRank(int32_t rank,
                                              const FlatGroup& group) const {
  const int64_t begin = rank * group.partition_elements;
  const int64_t end = begin + group.partition_elements;
  // The last parameter that starts at or before `begin` is the first candidate;
  // of those that start at the same place only the last can have elements.
  const auto behind =
      std::upper_bound(group.offsets.begin(), group.offsets.end(), begin);
  auto k = static_cast<size_t>(behind - group.offsets.begin());
  k -= k > 0 ? 1 : 0;
  std::vector<int32_t> result;
  for (; k < group.offsets.size() && group.offsets[k] < end; ++k) {
    const int64_t elements = numel_[static_cast<size_t>(group.parameters[k])];
    if (elements > 0 && group.offsets[k] + elements > begin) {
      result.push_back(static_cast<int32_t>(k));
    }
  }
  return result;
}

std::vector<int32_t> Partitioning::PiecesOnRank(int32_t rank,
                                                const FlatGroup& group) const {
  std::vector<int32_t> result;
  for (size_t k = 0; k < group.parameters.size(); ++k) {
    const int64_t elements = numel_[static_cast<size_t>(group.parameters[k])];
    const int64_t piece = piece_elements(group.parameters[k]);
    // The number of pieces that are not empty.
    if (elements > 0 && rank < CeilDivide(elements, piece)) {
      result.push_back(static_cast<int32_t>(k));
    }
  }
  return result;
}

}  // namespace muonstore
