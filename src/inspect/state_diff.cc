#include "src/inspect/state_diff.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "src/base/str.h"
#include "src/state/scalar_map.h"

namespace muonstore {
namespace {

constexpr const char* kNone = "(none)";

std::string Render(const std::optional<int64_t>& value) {
  return value ? StrCat(*value) : kNone;
}

std::optional<double> AsNumber(const Scalar& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return static_cast<double>(*integer);
  }
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return std::nullopt;
}

// Values of both maps in the order of A, then those that only B has.
void DiffMaps(const std::string& prefix, const ScalarMap& a, const ScalarMap& b,
              std::vector<ValueDiff>& out) {
  for (const auto& [name, value] : a) {
    const Scalar* other = FindScalar(b, name);
    if (other == nullptr) {
      out.push_back({prefix + name, ScalarToString(value), kNone, false});
    } else if (!ScalarsEqual(value, *other)) {
      out.push_back(
          {prefix + name, ScalarToString(value), ScalarToString(*other)});
    }
  }
  for (const auto& [name, value] : b) {
    if (FindScalar(a, name) == nullptr) {
      out.push_back({prefix + name, kNone, ScalarToString(value), false});
    }
  }
}

using Names = std::set<std::string>;

// Parameters by group. `aliases` renames tied parameters that the other side
// keeps under another name.
std::vector<Names> Members(const Checkpoint& checkpoint,
                           const std::map<std::string, std::string>& aliases) {
  std::vector<Names> members(checkpoint.info().groups.size());
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    const auto group = static_cast<size_t>(tensor.group);
    if (tensor.group < 0 || group >= members.size()) continue;
    const auto alias = aliases.find(tensor.key.parameter);
    members[group].insert(alias == aliases.end() ? tensor.key.parameter
                                                 : alias->second);
  }
  return members;
}

// Names in `from` that are not in `other`.
std::string NamesBeyond(const Names& from, const Names& other) {
  std::vector<std::string> names;
  std::set_difference(from.begin(), from.end(), other.begin(), other.end(),
                      std::back_inserter(names));
  return names.empty() ? kNone : JoinNames(names, 3);
}

class GroupMatcher {
 public:
  GroupMatcher(const Checkpoint& a, const Checkpoint& b)
      : a_(a.info().groups),
        b_(b.info().groups),
        members_a_(Members(a, {})),
        members_b_(Members(b, a.info().aliases)),
        taken_(b_.size(), false) {}

  std::vector<ValueDiff> Run() {
    std::vector<std::optional<size_t>> match(a_.size());
    for (size_t i = 0; i < a_.size(); ++i) {
      match[i] = Take([&](size_t j) {
        return !members_a_[i].empty() && members_a_[i] == members_b_[j];
      });
    }
    for (size_t i = 0; i < a_.size(); ++i) {
      if (match[i]) continue;
      match[i] = Take([&](size_t j) { return a_[i].name == b_[j].name; });
    }
    for (size_t i = 0; i < a_.size(); ++i) Compare(i, match[i]);
    for (size_t j = 0; j < b_.size(); ++j) {
      if (!taken_[j]) out_.push_back({Label(b_[j]), kNone, "present"});
    }
    return std::move(out_);
  }

 private:
  template <typename Predicate>
  std::optional<size_t> Take(const Predicate& fits) {
    for (size_t j = 0; j < b_.size(); ++j) {
      if (taken_[j] || !fits(j)) continue;
      taken_[j] = true;
      return j;
    }
    return std::nullopt;
  }

  static std::string Label(const ParamGroup& group) {
    return StrCat("group ", group.name);
  }

  void Compare(size_t i, std::optional<size_t> j) {
    const ParamGroup& a = a_[i];
    if (!j) {
      out_.push_back({Label(a), "present", kNone});
      return;
    }
    const ParamGroup& b = b_[*j];
    const std::string prefix = Label(a) + ": ";
    if (a.name != b.name) {
      out_.push_back({prefix + "name", a.name, b.name, false});
    }
    if (a.optimizer != b.optimizer) {
      out_.push_back({prefix + "optimizer",
                      std::string(OptimizerName(a.optimizer)),
                      std::string(OptimizerName(b.optimizer))});
    }
    if (members_a_[i] != members_b_[*j]) {
      out_.push_back({prefix + "parameters that the other lacks",
                      NamesBeyond(members_a_[i], members_b_[*j]),
                      NamesBeyond(members_b_[*j], members_a_[i])});
    }
    if (a.step != b.step) {
      const bool both = a.step && b.step;
      out_.push_back({prefix + "step", Render(a.step), Render(b.step), both});
    }
    DiffMaps(prefix, a.hyper_parameters, b.hyper_parameters, out_);
  }

  const std::vector<ParamGroup>& a_;
  const std::vector<ParamGroup>& b_;
  std::vector<Names> members_a_;
  std::vector<Names> members_b_;
  std::vector<bool> taken_;
  std::vector<ValueDiff> out_;
};

// Without their files, which differ anyway.
std::set<std::string> FaultsOf(const CheckpointInfo& info) {
  std::set<std::string> faults;
  for (const Finding& finding : info.findings) {
    if (finding.severity == Finding::Severity::kFault &&
        finding.place.tensor.empty()) {
      faults.insert(StrCat(finding.code, ": ", finding.message));
    }
  }
  return faults;
}

std::string Render(MomentumConvention convention) {
  return convention == MomentumConvention::kLerp ? "lerp" : "accumulate";
}

std::string Render(const MomentumRecord& record) {
  if (record.unit == MomentumUnit::kTrue) return "true gradients";
  return record.unit_scale
             ? StrCat("gradients times ", *record.unit_scale)
             : std::string("gradients times an unknown loss scale");
}

}  // namespace

bool ScalarsEqual(const Scalar& a, const Scalar& b) {
  const auto number_a = AsNumber(a);
  const auto number_b = AsNumber(b);
  if (number_a && number_b) return *number_a == *number_b;
  return a == b;
}

std::vector<ValueDiff> DiffGroups(const Checkpoint& a, const Checkpoint& b) {
  return GroupMatcher(a, b).Run();
}

std::vector<ValueDiff> DiffCounters(const CheckpointInfo& a,
                                    const CheckpointInfo& b) {
  std::vector<ValueDiff> out;
  if (a.step != b.step) {
    out.push_back({"step", Render(a.step), Render(b.step), a.step && b.step});
  }
  DiffMaps("counter ", a.counters, b.counters, out);
  return out;
}

std::vector<ValueDiff> DiffFaults(const CheckpointInfo& a,
                                  const CheckpointInfo& b) {
  const std::set<std::string> faults_a = FaultsOf(a);
  const std::set<std::string> faults_b = FaultsOf(b);
  std::vector<ValueDiff> out;
  for (const std::string& fault : faults_a) {
    const bool both = faults_b.contains(fault);
    out.push_back({"fault", fault, both ? fault : kNone, !both});
  }
  for (const std::string& fault : faults_b) {
    if (!faults_a.contains(fault)) out.push_back({"fault", kNone, fault});
  }
  return out;
}

std::vector<ValueDiff> DiffMomentumRecords(const CheckpointInfo& a,
                                           const CheckpointInfo& b) {
  std::vector<ValueDiff> out;
  // Without a record there is no momentum; its tensors say so themselves.
  if (!a.momentum || !b.momentum) return out;
  if (a.momentum->convention != b.momentum->convention) {
    out.push_back({"momentum convention", Render(a.momentum->convention),
                   Render(b.momentum->convention)});
  }
  const bool scaled = a.momentum->unit == MomentumUnit::kLossScaled;
  const bool same_unit = a.momentum->unit == b.momentum->unit;
  const std::string unit_a = Render(*a.momentum);
  const std::string unit_b = Render(*b.momentum);
  if (!same_unit) {
    out.push_back({"momentum unit", unit_a, unit_b});
  } else if (scaled) {
    const bool known = a.momentum->unit_scale && b.momentum->unit_scale;
    const bool differ = a.momentum->unit_scale != b.momentum->unit_scale;
    if (!known || differ)
      out.push_back({"momentum unit", unit_a, unit_b, known});
  }
  return out;
}

}  // namespace muonstore
