// What a store says of its run, in the words of CheckpointInfo.

#include <algorithm>
#include <string>

#include "src/base/str.h"
#include "src/checkpoint/counters.h"
#include "src/checkpoint/store_checkpoint.h"

namespace muonstore {
namespace {

std::string PrecisionOf(std::span<const ParameterSpec> parameters) {
  const auto has = [&](DType dtype) {
    return std::any_of(parameters.begin(), parameters.end(),
                       [&](const ParameterSpec& spec) {
                         return spec.optimizer != Optimizer::kNone &&
                                spec.weight_dtype == dtype;
                       });
  };
  if (has(DType::kBF16)) return "bf16";
  return has(DType::kF16) ? "fp16" : "fp32";
}

// By the names that torch.optim.Muon and AdamW use.
ScalarMap ToScalars(const GroupHyperParameters& values, Optimizer optimizer) {
  ScalarMap map = {{"lr", values.lr}, {"weight_decay", values.weight_decay}};
  if (optimizer == Optimizer::kMuon) {
    const bool rms = values.scale == MuonScaleMode::kMatchRms;
    map.emplace_back("momentum", values.momentum);
    map.emplace_back("nesterov", values.nesterov);
    map.emplace_back("adjust_lr_fn",
                     std::string(rms ? "match_rms_adamw" : "original"));
    return map;
  }
  map.emplace_back("betas", std::vector<double>{values.beta1, values.beta2});
  map.emplace_back("eps", values.eps);
  map.emplace_back("decoupled_weight_decay", values.decoupled_decay);
  if (values.adam_order == AdamOrder::kDeepSpeed) {
    map.emplace_back("bias_correction", true);
    map.emplace_back("amsgrad", false);
  }
  return map;
}

std::vector<ParamGroup> GroupsOf(const StateStore& store,
                                 const StoreRecord& record,
                                 const RunDescription& run) {
  std::vector<ParamGroup> groups(record.group_steps.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].name = StrCat("group ", i);
    groups[i].optimizer = Optimizer::kNone;
  }
  for (const ParameterSpec& spec : store.parameters()) {
    if (spec.optimizer == Optimizer::kNone) continue;
    ParamGroup& group = groups.at(static_cast<size_t>(spec.group));
    group.optimizer = spec.optimizer;
    ++group.num_parameters;
    group.num_elements += spec.shape.num_elements();
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].optimizer == Optimizer::kAdam) {
      groups[i].step = record.group_steps[i];
    }
    if (groups[i].optimizer != Optimizer::kNone && i < run.groups.size()) {
      groups[i].hyper_parameters =
          ToScalars(run.groups[i], groups[i].optimizer);
    }
  }
  return groups;
}

ScalarMap CountersOf(const StoreRecord& record, const ScalarMap& scalars) {
  ScalarMap counters = {{"global_steps", record.steps + record.skipped_steps},
                        {"skipped_steps", record.skipped_steps},
                        {std::string(kClippingCounter),
                         std::string(ClippingModeName(record.clipping))}};
  for (const auto& [name, value] : scalars) {
    counters.emplace_back(StrCat(kScalarPrefix, name), value);
  }
  return counters;
}

}  // namespace

CheckpointInfo DescribeStore(const StateStore& store, const StoreRecord& record,
                             const RunDescription& run) {
  CheckpointInfo info;
  info.format = "store";
  info.producer = "a muonstore store";
  info.step = record.steps + record.skipped_steps;
  info.stage = store.partitioning().stage();
  info.num_ranks = store.partitioning().num_ranks();
  info.precision = PrecisionOf(store.parameters());
  info.offload = "cpu";
  info.groups = GroupsOf(store, record, run);
  info.counters = CountersOf(record, run.scalars);
  for (const ParameterSpec& spec : store.parameters()) {
    info.module_order.push_back(spec.name);
    if (spec.optimizer == Optimizer::kNone) info.frozen.push_back(spec.name);
    if (spec.optimizer == Optimizer::kMuon) {
      info.momentum = {.convention = record.convention,
                       .unit = MomentumUnit::kTrue};
    }
    if (spec.layout != MatrixLayout::Whole()) {
      info.matrix_layouts[spec.name] = spec.layout.ToString();
    }
  }
  return info;
}

TargetLayout LayoutOf(const StateStore& store) {
  const Partitioning& partitioning = store.partitioning();
  return {.specs = {store.parameters().begin(), store.parameters().end()},
          .rule = {.stage = partitioning.stage(),
                   .num_ranks = partitioning.num_ranks(),
                   .muon_order = MuonOrder::kAsGiven,
                   .whole_rows = partitioning.whole_rows()},
          .partitioning = partitioning,
          .precision = PrecisionOf(store.parameters()),
          .offload = "cpu"};
}

}  // namespace muonstore
