#include "muonstore/run_options.h"

#include <cmath>
#include <optional>
#include <utility>

#include "formats/torchfile/carried_state.h"
#include "src/base/str.h"
#include "src/checkpoint/origin.h"
#include "src/state/scalar_map.h"

namespace muonstore {
namespace {

using torchfile::Value;
using torchfile::ValueType;

// DeepSpeed's config, where the checkpoint carries it. Keeps its tree alive.
struct CarriedConfig {
  torchfile::TreeRef tree;
  std::optional<Value> config;

  // The value under `keys`; nullopt where there is none.
  std::optional<Value> At(std::initializer_list<std::string_view> keys) const {
    std::optional<Value> at = config;
    for (const std::string_view key : keys) {
      if (!at || !at->is(ValueType::kDict)) return std::nullopt;
      at = at->Find(key);
    }
    return at;
  }

  std::optional<double> NumberAt(
      std::initializer_list<std::string_view> keys) const {
    const std::optional<Value> value = At(keys);
    const bool is_number =
        value && (value->is(ValueType::kInt) || value->is(ValueType::kFloat));
    return is_number ? std::optional(value->AsNumber()) : std::nullopt;
  }
};

CarriedConfig ConfigOf(const Checkpoint& checkpoint) {
  const torchfile::CarriedState* carried = checkpoint.carried_state();
  if (carried == nullptr || carried->num_ranks() == 0) return {};
  const torchfile::CarriedRank rank = carried->rank(0);
  for (const auto& tree : {rank.model_states, rank.optim_states}) {
    if (!tree || !tree->value().is(ValueType::kDict)) continue;
    const auto config = tree->value().Find("ds_config");
    if (config && config->is(ValueType::kDict)) return {*tree, config};
  }
  return {};
}

// Reads the hyper-parameters of one group, naming what is not there.
class GroupReader {
 public:
  GroupReader(const ParamGroup& group, size_t index, std::string file,
              const CarriedConfig& config, RunOptions& options)
      : group_(group),
        place_(StrCat("group ", index, " (", group.name, ")")),
        file_(std::move(file)),
        config_(config),
        options_(options) {}

  GroupHyperParameters Run() {
    const bool is_muon = group_.optimizer == Optimizer::kMuon;
    Number("lr", is_muon ? "muon_lr" : "adam_lr", values_.lr);
    Number("weight_decay", "", values_.weight_decay);
    if (is_muon) {
      ReadMuon();
    } else if (group_.optimizer == Optimizer::kAdam) {
      ReadAdam();
    }
    return values_;
  }

 private:
  void ReadMuon() {
    Number("momentum", "", values_.momentum);
    // DeepSpeed has no other: its groups do not say so.
    if (const auto nesterov = Flag("nesterov")) values_.nesterov = *nesterov;
    const Scalar* adjust = FindScalar(group_.hyper_parameters, "adjust_lr_fn");
    const auto* name = adjust ? std::get_if<std::string>(adjust) : nullptr;
    if (name != nullptr && *name == "match_rms_adamw") {
      values_.scale = MuonScaleMode::kMatchRms;
    }
  }

  void ReadAdam() {
    ReadBetas();
    Number("eps", "", values_.eps);
    Refuse("amsgrad", true);
    Refuse("maximize", true);
    Refuse("bias_correction", false);
    values_.decoupled_decay =
        Flag("decoupled_weight_decay").value_or(values_.decoupled_decay);
    // DeepSpeedCPUAdam is the one with both.
    if (Flag("bias_correction") && Flag("amsgrad")) {
      values_.adam_order = AdamOrder::kDeepSpeed;
    }
  }

  void ReadBetas() {
    const Scalar* value = FindScalar(group_.hyper_parameters, "betas");
    if (value == nullptr) {
      const auto betas = config_.At({"optimizer", "params", "betas"});
      const bool is_pair =
          betas && betas->is(ValueType::kList) && betas->size() == 2;
      if (is_pair) {
        values_.beta1 = betas->at(0).AsNumber();
        values_.beta2 = betas->at(1).AsNumber();
      } else {
        Missing("betas");
      }
      return;
    }
    const auto* betas = std::get_if<std::vector<double>>(value);
    if (betas == nullptr || betas->size() != 2) {
      Fail("betas", "two numbers", *value);
    }
    values_.beta1 = (*betas)[0];
    values_.beta2 = (*betas)[1];
  }

  // From the group, else from the config: `own_key` before `name`.
  void Number(std::string_view name, std::string_view own_key, double& out) {
    if (const Scalar* value = FindScalar(group_.hyper_parameters, name)) {
      out = AsNumber(name, *value);
      return;
    }
    std::optional<double> number;
    if (!own_key.empty()) {
      number = config_.NumberAt({"optimizer", "params", own_key});
    }
    if (!number) number = config_.NumberAt({"optimizer", "params", name});
    if (number) {
      out = *number;
    } else {
      Missing(name);
    }
  }

  double AsNumber(std::string_view name, const Scalar& value) const {
    double number = std::nan("");
    if (const auto* real = std::get_if<double>(&value)) number = *real;
    if (const auto* whole = std::get_if<int64_t>(&value)) {
      number = static_cast<double>(*whole);
    }
    if (!std::isfinite(number)) Fail(name, "a finite number", value);
    return number;
  }

  std::optional<bool> Flag(std::string_view name) const {
    const Scalar* value = FindScalar(group_.hyper_parameters, name);
    const auto* flag = value ? std::get_if<bool>(value) : nullptr;
    return flag ? std::optional(*flag) : std::nullopt;
  }

  void Refuse(std::string_view name, bool setting) const {
    if (Flag(name) != setting) return;
    throw Error(ErrorCode::kUnsupported,
                "an executor does not have this setting",
                {.file = file_,
                 .tensor = place_,
                 .found = StrCat(name, setting ? " true" : " false")});
  }

  [[noreturn]] void Fail(std::string_view name, std::string expected,
                         const Scalar& found) const {
    throw Error(ErrorCode::kDataLoss,
                StrCat("the hyper-parameter ", name, " has a wrong type"),
                {.file = file_,
                 .tensor = place_,
                 .expected = std::move(expected),
                 .found = ScalarToString(found)});
  }

  void Missing(std::string_view name) {
    options_.missing.push_back(StrCat(place_, ": ", name));
  }

  const ParamGroup& group_;
  const std::string place_;
  const std::string file_;
  const CarriedConfig& config_;
  RunOptions& options_;
  GroupHyperParameters values_;
};

// As DeepSpeed: 0 is off, as for our executor.
void ReadClipping(const CarriedConfig& config, RunOptions& options) {
  if (const auto norm = config.NumberAt({"gradient_clipping"})) {
    options.executor.max_norm = *norm;
  } else if (config.config) {
    options.executor.max_norm = 0;
  } else {
    options.missing.emplace_back("gradient_clipping");
  }
}

void SetNewtonSchulz(const CheckpointInfo& info, RunOptions& options) {
  if (!IsDeepSpeedRun(info) || !info.momentum) return;
  options.executor.newton_schulz.normalization =
      NewtonSchulzNormalization::kCompat;
  options.notes.emplace_back(
      "Newton-Schulz runs in f32 on unrounded matrices; DeepSpeed rounds "
      "momentum and update to the communication dtype in most of its modes");
}

}  // namespace

RunOptions RunOptionsOf(const Checkpoint& checkpoint) {
  const CheckpointInfo& info = checkpoint.info();
  const CarriedConfig config = ConfigOf(checkpoint);
  RunOptions options;
  for (size_t i = 0; i < info.groups.size(); ++i) {
    options.executor.groups.push_back(
        GroupReader(info.groups[i], i, info.path, config, options).Run());
  }
  ReadClipping(config, options);
  SetNewtonSchulz(info, options);
  return options;
}

}  // namespace muonstore
