#include "src/partition/zero_rules.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

const ParameterSpec& At(std::span<const ParameterSpec> specs, int32_t index) {
  return specs[static_cast<size_t>(index)];
}

void RequireAtLeastOne(int64_t value, const char* what) {
  if (value < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(what, " of a ZeRO rule is not positive"),
                {.expected = "at least 1", .found = std::to_string(value)});
  }
}

// Trainable parameters by param group, each in the given order.
std::map<int32_t, std::vector<int32_t>> ByGroup(
    std::span<const ParameterSpec> specs) {
  std::map<int32_t, std::vector<int32_t>> groups;
  for (size_t i = 0; i < specs.size(); ++i) {
    const ParameterSpec& spec = specs[i];
    if (spec.optimizer == Optimizer::kNone || spec.shape.num_elements() == 0) {
      continue;
    }
    if (spec.group < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("param group ", spec.group, " is negative"),
                  {.tensor = spec.name});
    }
    std::vector<int32_t>& members = groups[spec.group];
    if (!members.empty() && At(specs, members[0]).optimizer != spec.optimizer) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("param group ", spec.group,
                         " mixes optimizers; give each its own group"),
                  {.tensor = spec.name});
    }
    members.push_back(static_cast<int32_t>(i));
  }
  return groups;
}

// As Python's sorted(params, key=size, reverse=True): equals keep their order.
void SortByShapeDescending(std::span<const ParameterSpec> specs,
                           std::vector<int32_t>& members) {
  std::stable_sort(members.begin(), members.end(),
                   [&specs](int32_t a, int32_t b) {
                     return At(specs, a).shape > At(specs, b).shape;
                   });
}

// Parameter k goes to bucket k mod num_ranks; buckets follow one another.
std::vector<int32_t> DealRoundRobin(const std::vector<int32_t>& members,
                                    int32_t num_ranks) {
  std::vector<int32_t> dealt;
  dealt.reserve(members.size());
  const auto step = static_cast<size_t>(num_ranks);
  for (size_t first = 0; first < std::min(step, members.size()); ++first) {
    for (size_t k = first; k < members.size(); k += step) {
      dealt.push_back(members[k]);
    }
  }
  return dealt;
}

// Behind each parameter but the last, up to the next multiple of 16 bytes.
std::vector<int64_t> AlignmentPads(std::span<const ParameterSpec> specs,
                                   const std::vector<int32_t>& members) {
  constexpr int64_t kAlignmentBytes = 16;
  std::vector<int64_t> pads(members.size(), 0);
  int64_t position = 0;
  for (size_t k = 0; k + 1 < members.size(); ++k) {
    const ParameterSpec& spec = At(specs, members[k]);
    const int64_t unit =
        kAlignmentBytes /
        std::gcd(kAlignmentBytes, SizeBytes(spec.weight_dtype));
    position = CheckedAdd(position, spec.shape.num_elements(),
                          "the element count of a param group");
    const int64_t aligned = RoundUp(position, unit);
    pads[k] = aligned - position;
    position = aligned;
  }
  return pads;
}

FlatGroup FormWholeGroup(std::span<const ParameterSpec> specs,
                         const ZeroRule& rule, int32_t group,
                         std::vector<int32_t> members) {
  FlatGroup flat;
  flat.group = group;
  flat.parameters = rule.round_robin ? DealRoundRobin(members, rule.num_ranks)
                                     : std::move(members);
  if (rule.parameter_alignment) {
    flat.pad_after = AlignmentPads(specs, flat.parameters);
  }
  return flat;
}

// A sub-group closes once its pieces reach the size; so it may exceed it by
// almost one parameter.
void AppendSubGroups(std::span<const ParameterSpec> specs, const ZeroRule& rule,
                     int32_t group, const std::vector<int32_t>& members,
                     std::vector<FlatGroup>& out) {
  int64_t open_elements = rule.sub_group_size;  // None is open.
  for (const int32_t parameter : members) {
    if (open_elements >= rule.sub_group_size) {
      out.emplace_back().group = group;
      open_elements = 0;
    }
    out.back().parameters.push_back(parameter);
    const int64_t piece = PieceElements(At(specs, parameter).shape, rule);
    open_elements = CheckedAdd(open_elements, piece, "the size of a sub-group");
  }
}

}  // namespace

void CheckRule(const ZeroRule& rule) {
  if (rule.stage < 1 || rule.stage > 3) {
    throw Error(ErrorCode::kInvalidArgument, "the ZeRO stage makes no sense",
                {.expected = "1, 2 or 3", .found = std::to_string(rule.stage)});
  }
  RequireAtLeastOne(rule.num_ranks, "the number of ranks");
  RequireAtLeastOne(rule.flat_alignment_elements, "the flat alignment");
  RequireAtLeastOne(rule.sub_group_size, "the sub-group size");
  if (rule.whole_rows && rule.stage != 3) {
    throw Error(ErrorCode::kInvalidArgument,
                "only stage 3 cuts parameters into pieces of whole rows",
                {.expected = "stage 3", .found = std::to_string(rule.stage)});
  }
}

int64_t RoundUp(int64_t count, int64_t unit) {
  const int64_t remainder = count % unit;
  return remainder == 0
             ? count
             : CheckedAdd(count, unit - remainder, "a padded element count");
}

int64_t CeilDivide(int64_t count, int64_t parts) {
  return count / parts + (count % parts == 0 ? 0 : 1);
}

int64_t PieceElements(const Shape& shape, const ZeroRule& rule) {
  const int64_t elements = shape.num_elements();
  const std::vector<int64_t>& dims = shape.dims();
  if (!rule.whole_rows || elements == 0 || dims.empty()) {
    return CeilDivide(elements, rule.num_ranks);
  }
  return CeilDivide(dims[0], rule.num_ranks) * (elements / dims[0]);
}

std::vector<FlatGroup> FormFlatGroups(std::span<const ParameterSpec> specs,
                                      const ZeroRule& rule) {
  std::vector<FlatGroup> flat_groups;
  for (auto& [group, members] : ByGroup(specs)) {
    const bool is_muon = At(specs, members[0]).optimizer == Optimizer::kMuon;
    if (is_muon && rule.muon_order == MuonOrder::kSortedByShape) {
      SortByShapeDescending(specs, members);
    }
    if (rule.stage == 3) {
      AppendSubGroups(specs, rule, group, members, flat_groups);
    } else {
      flat_groups.push_back(
          FormWholeGroup(specs, rule, group, std::move(members)));
    }
  }
  return flat_groups;
}

}  // namespace muonstore
