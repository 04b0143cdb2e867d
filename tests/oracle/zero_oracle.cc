#include "tests/oracle/zero_oracle.h"

#include <algorithm>

namespace muonstore::oracle {
namespace {

int64_t CountOf(const Parameter& parameter) {
  int64_t count = 1;
  for (const int64_t dim : parameter.dims) {
    count *= dim;
  }
  return count;
}

Labels LabelsOf(const std::vector<Parameter>& parameters, int index) {
  int64_t label = FirstLabels(parameters)[static_cast<size_t>(index)];
  Labels labels;
  for (int64_t i = 0; i < CountOf(parameters[static_cast<size_t>(index)]);
       ++i) {
    labels.push_back(label++);
  }
  return labels;
}

// Whether the shape of `a` comes before that of `b` in descending order.
bool IsLarger(const Parameter& a, const Parameter& b) {
  for (size_t i = 0; i < a.dims.size(); ++i) {
    if (i == b.dims.size()) {
      return true;
    }
    if (a.dims[i] != b.dims[i]) {
      return a.dims[i] > b.dims[i];
    }
  }
  return false;
}

// Insertion sort: behind everything that is not smaller, so equals keep their
// order.
std::vector<int> SortDescending(const std::vector<Parameter>& parameters,
                                const std::vector<int>& members) {
  std::vector<int> sorted;
  for (const int member : members) {
    auto place = sorted.begin();
    while (place != sorted.end() &&
           !IsLarger(parameters[static_cast<size_t>(member)],
                     parameters[static_cast<size_t>(*place)])) {
      ++place;
    }
    sorted.insert(place, member);
  }
  return sorted;
}

std::vector<int> RoundRobin(const std::vector<int>& members, int num_ranks) {
  std::vector<std::vector<int>> buckets(static_cast<size_t>(num_ranks));
  for (size_t k = 0; k < members.size(); ++k) {
    buckets[k % static_cast<size_t>(num_ranks)].push_back(members[k]);
  }
  std::vector<int> order;
  for (const std::vector<int>& bucket : buckets) {
    order.insert(order.end(), bucket.begin(), bucket.end());
  }
  return order;
}

Group WriteWhole(const std::vector<Parameter>& parameters, const Rule& rule,
                 int group, const std::vector<int>& members) {
  Group result;
  result.group = group;
  result.order =
      rule.round_robin ? RoundRobin(members, rule.num_ranks) : members;
  Labels flat;
  for (size_t k = 0; k < result.order.size(); ++k) {
    const Labels labels = LabelsOf(parameters, result.order[k]);
    flat.insert(flat.end(), labels.begin(), labels.end());
    int64_t pad = 0;
    const bool is_last = k + 1 == result.order.size();
    const int64_t item_bytes =
        parameters[static_cast<size_t>(result.order[k])].item_bytes;
    while (rule.align_parameters && !is_last &&
           (static_cast<int64_t>(flat.size()) * item_bytes) % 16 != 0) {
      flat.push_back(kPadding);
      ++pad;
    }
    result.pad_after.push_back(pad);
  }
  while (static_cast<int64_t>(flat.size()) %
             (rule.alignment * rule.num_ranks) !=
         0) {
    flat.push_back(kPadding);
  }
  const auto size = static_cast<std::ptrdiff_t>(flat.size()) / rule.num_ranks;
  for (std::ptrdiff_t rank = 0; rank < rule.num_ranks; ++rank) {
    result.ranks.emplace_back(flat.begin() + rank * size,
                              flat.begin() + (rank + 1) * size);
  }
  return result;
}

// Pieces of one parameter, all of the same size; `unit` elements stay together.
std::vector<Labels> Pieces(Labels labels, int num_ranks, int64_t unit) {
  while (static_cast<int64_t>(labels.size()) % (num_ranks * unit) != 0) {
    labels.push_back(kPadding);
  }
  const auto size = static_cast<std::ptrdiff_t>(labels.size()) / num_ranks;
  std::vector<Labels> pieces;
  for (std::ptrdiff_t rank = 0; rank < num_ranks; ++rank) {
    pieces.emplace_back(labels.begin() + rank * size,
                        labels.begin() + (rank + 1) * size);
  }
  return pieces;
}

std::vector<Group> WriteSubGroups(const std::vector<Parameter>& parameters,
                                  const Rule& rule, int group,
                                  const std::vector<int>& members) {
  std::vector<Group> result;
  bool is_open = false;
  for (const int member : members) {
    if (!is_open) {
      result.emplace_back();
      result.back().group = group;
      result.back().ranks.resize(static_cast<size_t>(rule.num_ranks));
    }
    Group& open = result.back();
    open.order.push_back(member);
    open.pad_after.push_back(0);
    const std::vector<int64_t>& dims =
        parameters[static_cast<size_t>(member)].dims;
    int64_t row_elements = 1;
    for (size_t d = 1; rule.whole_rows && d < dims.size(); ++d) {
      row_elements *= dims[d];
    }
    const std::vector<Labels> pieces =
        Pieces(LabelsOf(parameters, member), rule.num_ranks, row_elements);
    for (size_t rank = 0; rank < pieces.size(); ++rank) {
      Labels& flat = open.ranks[rank];
      flat.insert(flat.end(), pieces[rank].begin(), pieces[rank].end());
    }
    is_open = static_cast<int64_t>(open.ranks[0].size()) < rule.sub_group_size;
  }
  return result;
}

}  // namespace

std::vector<int64_t> FirstLabels(const std::vector<Parameter>& parameters) {
  std::vector<int64_t> first;
  int64_t next = 0;
  for (const Parameter& parameter : parameters) {
    first.push_back(next);
    next += CountOf(parameter);
  }
  return first;
}

std::vector<Group> WriteFlat(const std::vector<Parameter>& parameters,
                             const Rule& rule) {
  int num_groups = 0;
  for (const Parameter& parameter : parameters) {
    num_groups = std::max(num_groups, parameter.group + 1);
  }
  std::vector<Group> result;
  for (int group = 0; group < num_groups; ++group) {
    std::vector<int> members;
    bool is_muon = false;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& parameter = parameters[i];
      if (parameter.group == group && parameter.is_trained &&
          CountOf(parameter) > 0) {
        members.push_back(static_cast<int>(i));
        is_muon = parameter.is_muon;
      }
    }
    if (members.empty()) {
      continue;
    }
    if (is_muon && rule.sort_muon) {
      members = SortDescending(parameters, members);
    }
    if (rule.stage == 3) {
      const std::vector<Group> sub_groups =
          WriteSubGroups(parameters, rule, group, members);
      result.insert(result.end(), sub_groups.begin(), sub_groups.end());
    } else {
      result.push_back(WriteWhole(parameters, rule, group, members));
    }
  }
  return result;
}

}  // namespace muonstore::oracle
