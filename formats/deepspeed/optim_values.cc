#include "formats/deepspeed/optim_values.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "formats/deepspeed/values.h"

namespace muonstore::deepspeed {

using torchfile::Construction;
using torchfile::Draft;
using torchfile::NodeId;
using torchfile::Value;

namespace {

constexpr std::string_view kScalerModule = "deepspeed.runtime.fp16.loss_scaler";
constexpr double kDefaultDynamicScale = 65536;

NodeId StaticScaler(Draft& draft) {
  const NodeId state = draft.Dict();
  draft.SetItem(state, "cur_scale", draft.Float(1));
  draft.SetItem(state, "dynamic", draft.Bool(false));
  return draft.Object(
      {.module = kScalerModule, .name = "LossScaler", .state = state});
}

// DeepSpeed's defaults.
NodeId DynamicScaler(Draft& draft, double scale) {
  const NodeId state = draft.Dict();
  draft.SetItem(state, "cur_scale", draft.Float(scale));
  draft.SetItem(state, "dynamic", draft.Bool(true));
  draft.SetItem(state, "cur_iter", draft.Int(0));
  draft.SetItem(state, "last_overflow_iter", draft.Int(-1));
  draft.SetItem(state, "scale_factor", draft.Float(2));
  draft.SetItem(state, "scale_window", draft.Int(1000));
  draft.SetItem(state, "min_scale", draft.Int(1));
  draft.SetItem(state, "delayed_shift", draft.Int(2));
  draft.SetItem(state, "cur_hysteresis", draft.Int(2));
  draft.SetItem(state, "consecutive_hysteresis", draft.Bool(false));
  draft.SetItem(state, "raise_error_at_min_scale", draft.Bool(true));
  draft.SetItem(state, "dtype", draft.Global("torch", "float16"));
  return draft.Object(
      {.module = kScalerModule, .name = "DynamicLossScaler", .state = state});
}

double ScaleOf(const CheckpointInfo& info) {
  for (const auto& [name, value] : info.counters) {
    if (name == "loss_scale" && std::holds_alternative<double>(value)) {
      return std::get<double>(value);
    }
  }
  return kDefaultDynamicScale;
}

struct ConfigKey {
  std::string_view key;
  std::string_view own_key;  // Overrides `key`; may be empty.
  double fallback;
};

constexpr ConfigKey kMuonKeys[] = {
    {"lr", "muon_lr", 0.02}, {"momentum", "", 0.95}, {"weight_decay", "", 0}};
constexpr ConfigKey kAdamKeys[] = {
    {"lr", "adam_lr", 3e-4}, {"eps", "", 1e-8}, {"weight_decay", "", 0}};

void SetFromConfig(const std::optional<Value>& params, const ConfigKey& key,
                   FileDraft& file, NodeId group) {
  auto value = Lookup(params, {key.own_key});
  if (!value) {
    value = Lookup(params, {key.key});
  }
  file.draft().SetItem(group, key.key,
                       file.CopyOr(value, file.draft().Float(key.fallback)));
}

// As DeepSpeed makes them from the config at the start of a run.
NodeId GroupFromConfig(Optimizer optimizer, FileDraft& file) {
  Draft& draft = file.draft();
  const auto params =
      Lookup(file.carried(), {"ds_config", "optimizer", "params"});
  const NodeId group = draft.Dict();
  const bool is_muon = optimizer == Optimizer::kMuon;
  draft.SetItem(group, "use_muon", draft.Bool(is_muon));
  draft.SetItem(group, "name",
                draft.Str(is_muon ? "muon-params" : "adam-params"));
  if (is_muon) {
    for (const ConfigKey& key : kMuonKeys) {
      SetFromConfig(params, key, file, group);
    }
    draft.SetItem(group, "ns_method", draft.Str("gram"));
    return group;
  }
  const std::array defaults = {draft.Float(0.9), draft.Float(0.95)};
  const NodeId betas = draft.List(defaults);
  draft.SetItem(group, "betas", file.CopyOr(Lookup(params, {"betas"}), betas));
  for (const ConfigKey& key : kAdamKeys) {
    SetFromConfig(params, key, file, group);
  }
  draft.SetItem(group, "bias_correction", draft.Bool(true));
  return group;
}

// Without the carried file: from what the source's reader says.
NodeId GroupFromInfo(const ParamGroup& group, Draft& draft) {
  const NodeId values = draft.Dict();
  if (group.optimizer == Optimizer::kMuon ||
      group.optimizer == Optimizer::kAdam) {
    draft.SetItem(values, "use_muon",
                  draft.Bool(group.optimizer == Optimizer::kMuon));
  }
  draft.SetItem(values, "name", draft.Str(group.name));
  for (const auto& [name, value] : group.hyper_parameters) {
    draft.SetItem(values, name, ToNode(draft, value));
  }
  return values;
}

// FusedAdam keeps a `step`, DeepSpeedCPUAdam an `amsgrad`: both have
// bias_correction.
std::vector<Replacement> OptimizerKeys(const Target& target, const Value& group,
                                       Draft& draft) {
  if (!group.Find("bias_correction")) {
    return {};
  }
  const bool on_cpu = target.layout().offload != "none";
  if (on_cpu && !group.Find("amsgrad")) {
    return {{"step", std::nullopt}, {"amsgrad", draft.Bool(false)}};
  }
  if (!on_cpu && group.Find("amsgrad")) {
    return {{"amsgrad", std::nullopt}, {"step", draft.Int(0)}};
  }
  return {};
}

}  // namespace

NodeId ToNode(Draft& draft, const Scalar& value) {
  struct Visitor {
    Draft& draft;
    NodeId operator()(std::monostate) const { return draft.None(); }
    NodeId operator()(bool v) const { return draft.Bool(v); }
    NodeId operator()(int64_t v) const { return draft.Int(v); }
    NodeId operator()(double v) const { return draft.Float(v); }
    NodeId operator()(const std::string& v) const { return draft.Str(v); }
    NodeId operator()(const std::vector<double>& v) const {
      std::vector<NodeId> items;
      items.reserve(v.size());
      for (const double number : v) {
        items.push_back(draft.Float(number));
      }
      return draft.List(items);
    }
  };
  return std::visit(Visitor{draft}, value);
}

NodeId ZeroStage(Draft& draft, int32_t stage) {
  return draft.Object({.module = "deepspeed.runtime.zero.config",
                       .name = "ZeroStageEnum",
                       .args = {draft.Int(stage)},
                       .construction = Construction::kReduce});
}

NodeId LossScaler(const Target& target, const CarriedOptimizer& carried,
                  FileDraft& file) {
  const std::string& precision = target.layout().precision;
  const auto scaler = carried.Find("loss_scaler");
  if (scaler && target.source().info().precision == precision) {
    return file.Copy(*scaler);
  }
  return precision == "fp16"
             ? DynamicScaler(file.draft(), ScaleOf(target.source().info()))
             : StaticScaler(file.draft());
}

NodeId ParamGroupValues(const Target& target, const CarriedOptimizer& carried,
                        size_t group, NodeId params, FileDraft& file) {
  if (const auto values = carried.ParamGroup(group)) {
    std::vector<Replacement> replacements =
        OptimizerKeys(target, *values, file.draft());
    replacements.emplace_back("params", params);
    return file.Rewrite(values, replacements);
  }
  const ParamGroup& info = target.source().info().groups[group];
  const bool is_known =
      info.optimizer == Optimizer::kMuon || info.optimizer == Optimizer::kAdam;
  const bool needs_config = info.hyper_parameters.empty() && file.carried();
  const NodeId values = is_known && needs_config
                            ? GroupFromConfig(info.optimizer, file)
                            : GroupFromInfo(info, file.draft());
  file.draft().SetItem(values, "params", params);
  return values;
}

NodeId SliceMapping(const Target& target, int32_t rank, size_t flat_group,
                    FileDraft& file) {
  Draft& draft = file.draft();
  const FlatGroup& group = target.partitioning().groups()[flat_group];
  const NodeId mapping = draft.OrderedDict();
  for (const int32_t position : target.partitioning().parameters_on_rank(
           rank, static_cast<int32_t>(flat_group))) {
    const auto at = static_cast<size_t>(position);
    const ParameterSpec& spec = target.spec(group.parameters[at]);
    const int64_t begin = group.offsets[at] - rank * group.partition_elements;
    const int64_t start = std::max<int64_t>(0, begin);
    const int64_t end =
        std::min(group.partition_elements, begin + spec.shape.num_elements());
    const NodeId state = draft.Dict();
    draft.SetItem(state, "numel", draft.Int(end - start));
    draft.SetItem(state, "start", draft.Int(start));
    draft.SetItem(mapping, spec.name,
                  draft.Object({.module = "deepspeed.utils.tensor_fragment",
                                .name = "fragment_address",
                                .state = state}));
  }
  return mapping;
}

}  // namespace muonstore::deepspeed
