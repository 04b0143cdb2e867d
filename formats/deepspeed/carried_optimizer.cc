#include "formats/deepspeed/carried_optimizer.h"

#include "formats/deepspeed/values.h"

namespace muonstore::deepspeed {

using torchfile::Value;
using torchfile::ValueType;

CarriedOptimizer::CarriedOptimizer(std::optional<Value> root)
    : optimizer_(Lookup(root, {"optimizer_state_dict"})) {
  auto base = Lookup(optimizer_, {"base_optimizer_state"});
  if (!base) {
    base = Lookup(optimizer_, {"optimizer_state_dict"});
  }
  if (base && base->is(ValueType::kList)) {
    elastic_ = base;
  } else {
    groups_ = Lookup(base, {"param_groups"});
    states_ = Lookup(base, {"state"});
  }
}

std::optional<Value> CarriedOptimizer::Find(std::string_view key) const {
  return Lookup(optimizer_, {key});
}

std::optional<Value> CarriedOptimizer::ParamGroup(size_t group) const {
  return groups_ && group < groups_->size() ? std::optional(groups_->at(group))
                                            : std::nullopt;
}

std::optional<Value> CarriedOptimizer::StateOfGroup(size_t group) const {
  const auto has_content = [](const std::optional<Value>& state) {
    return state && state->is(ValueType::kDict) && state->size() != 0;
  };
  if (elastic_ && group < elastic_->size() &&
      has_content(elastic_->at(group))) {
    return elastic_->at(group);
  }
  const auto params = Lookup(ParamGroup(group), {"params"});
  for (size_t i = 0; states_ && params && i < params->size(); ++i) {
    const auto state = states_->Find(params->at(i).AsInt());
    if (has_content(state)) {
      return state;
    }
  }
  return std::nullopt;
}

}  // namespace muonstore::deepspeed
