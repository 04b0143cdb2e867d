#include "converters/parameter_order.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

namespace muonstore {
namespace {

using Specs = std::vector<ParameterSpec>;

bool SameOrder(const Specs& a, const Specs& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const ParameterSpec& x, const ParameterSpec& y) {
                      return x.name == y.name;
                    });
}

Specs Sorted(Specs specs) {
  std::stable_sort(specs.begin(), specs.end(),
                   [](const ParameterSpec& a, const ParameterSpec& b) {
                     return a.shape > b.shape;
                   });
  return specs;
}

// Dealing puts parameter k of n into bucket k mod ranks; this takes it back.
Specs Undealt(const Specs& dealt, int32_t num_ranks) {
  Specs specs(dealt.size());
  const auto step = static_cast<size_t>(num_ranks);
  size_t next = 0;
  for (size_t first = 0; first < std::min(step, dealt.size()); ++first) {
    for (size_t k = first; k < dealt.size(); k += step) {
      specs[k] = dealt[next++];
    }
  }
  return specs;
}

class ModuleOrder {
 public:
  explicit ModuleOrder(const Checkpoint& checkpoint) {
    for (const std::string& name : checkpoint.info().module_order) {
      index_.emplace(name, index_.size());
    }
  }

  std::optional<Specs> Arrange(Specs specs) const {
    for (const ParameterSpec& spec : specs) {
      if (!index_.contains(spec.name)) return std::nullopt;
    }
    std::stable_sort(specs.begin(), specs.end(),
                     [this](const ParameterSpec& a, const ParameterSpec& b) {
                       return index_.at(a.name) < index_.at(b.name);
                     });
    return specs;
  }

 private:
  std::unordered_map<std::string, size_t> index_;
};

class Finder {
 public:
  Finder(const Checkpoint& checkpoint, const StoredLayout& layout)
      : modules_(checkpoint),
        num_ranks_(checkpoint.info().num_ranks),
        can_be_dealt_(!layout.groups.empty() &&
                      checkpoint.info().stage.value_or(0) < 3) {
    for (const ParameterSpec& spec : layout.specs) {
      (spec.shape.num_elements() > 0 ? groups_[spec.group] : empty_)
          .push_back(spec);
    }
  }

  ParameterOrder Run(std::optional<bool> round_robin) {
    ParameterOrder order;
    order.round_robin = can_be_dealt_ && IsDealt(round_robin);
    order.by_module.emplace();
    for (const auto& [group, specs] : groups_) {
      AddGroup(order.round_robin ? Undealt(specs, num_ranks_) : specs, order);
    }
    Append(empty_, order.as_stored);
    if (order.by_module) Append(empty_, *order.by_module);
    return order;
  }

 private:
  static void Append(const Specs& specs, Specs& to) {
    to.insert(to.end(), specs.begin(), specs.end());
  }

  // What the file shows wins over what a config says.
  bool IsDealt(std::optional<bool> round_robin) const {
    bool explains_stored = true;
    bool explains_undealt = true;
    for (const auto& [group, specs] : groups_) {
      explains_stored = explains_stored && IsKnownOrder(specs);
      explains_undealt =
          explains_undealt && IsKnownOrder(Undealt(specs, num_ranks_));
    }
    return explains_stored == explains_undealt ? round_robin.value_or(false)
                                               : explains_undealt;
  }

  bool IsKnownOrder(const Specs& specs) const {
    const auto by_module = modules_.Arrange(specs);
    return by_module && (SameOrder(specs, *by_module) ||
                         (specs[0].optimizer == Optimizer::kMuon &&
                          SameOrder(specs, Sorted(*by_module))));
  }

  void AddGroup(const Specs& specs, ParameterOrder& order) {
    Append(specs, order.as_stored);
    std::optional<Specs> given = specs;
    if (specs[0].optimizer == Optimizer::kMuon) {
      const auto by_module = modules_.Arrange(specs);
      const bool is_given = by_module && SameOrder(specs, *by_module);
      const Specs sorted = Sorted(by_module.value_or(specs));
      const bool is_sorted = SameOrder(specs, sorted);
      order.is_by_module = order.is_by_module && is_given;
      order.is_sorted = order.is_sorted && is_sorted;
      // Of a group in neither order, nothing tells how it was given.
      given = is_given || is_sorted ? by_module : std::nullopt;
    }
    if (!given) order.by_module.reset();
    if (order.by_module) Append(*given, *order.by_module);
  }

  ModuleOrder modules_;
  int32_t num_ranks_;
  bool can_be_dealt_;
  std::map<int32_t, Specs> groups_;
  Specs empty_;
};

}  // namespace

ParameterOrder FindOrder(const Checkpoint& checkpoint,
                         const StoredLayout& layout,
                         std::optional<bool> round_robin) {
  return Finder(checkpoint, layout).Run(round_robin);
}

}  // namespace muonstore
