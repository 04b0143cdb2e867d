#include "tests/executor/replay_run.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <gtest/gtest.h>

namespace muonstore::testutil {
namespace {

constexpr int32_t kMuonGroup = 0;
constexpr int32_t kAdamGroup = 1;

bool IsMuon(const ReplayParameter& parameter) {
  // Without elements there is nothing to update, by either of them.
  return parameter.kind == "none" ? parameter.shape.size() > 1
                                  : parameter.kind != "adam";
}

int64_t RowsOf(const ReplayParameter& parameter) { return parameter.shape[0]; }

MatrixLayout LayoutOf(const ReplayParameter& parameter,
                      const StepsReplay& replay) {
  if (parameter.kind == "conv") return MatrixLayout::ConvFolded();
  if (parameter.kind == "experts") return MatrixLayout::Experts();
  if (parameter.kind != "qkv" || replay.split.empty()) {
    return MatrixLayout::Whole();
  }
  if (replay.split == "per_head") {
    return MatrixLayout::PerHead(3 * replay.num_heads);
  }
  if (replay.split == "qkv_packed") {
    return MatrixLayout::PackedRows(
        std::vector<int64_t>(3, RowsOf(parameter) / 3));
  }
  return MatrixLayout::InterleavedPacked(replay.num_heads, 1);
}

oracle::MatrixRule RuleOf(const ReplayParameter& parameter,
                          const StepsReplay& replay) {
  using RuleKind = oracle::MatrixRule::Kind;
  if (parameter.kind == "experts") return {.kind = RuleKind::kExperts};
  if (parameter.kind != "qkv" || replay.split.empty()) return {};
  if (replay.split == "per_head") {
    return {.kind = RuleKind::kPerHead, .count = 3 * replay.num_heads};
  }
  if (replay.split == "qkv_packed") {
    return {.kind = RuleKind::kPackedRows,
            .sizes = std::vector<int64_t>(3, RowsOf(parameter) / 3),
            .count = replay.num_heads};
  }
  return {.kind = RuleKind::kInterleavedPacked, .count = replay.num_heads};
}

// One step: which gradients, and whether one of them is not finite.
struct Action {
  int64_t step = 0;
  bool overflows = false;
  // False: an extra step; the recorded one comes after it.
  bool is_recorded = true;
};

std::vector<Action> ActionsOf(const StepsReplay& replay, int64_t num_gradients,
                              int64_t limit) {
  int64_t last = 0;
  for (const auto& [step, state] : replay.expected) {
    if (step * replay.micro_batches <= num_gradients && step <= limit) {
      last = step;
    }
  }
  std::vector<Action> actions;
  for (int64_t step = 1; step <= last; ++step) {
    const bool overflows = step == replay.overflow_step;
    if (overflows && replay.overflow_is_extra) {
      actions.push_back({step, true, false});
    }
    actions.push_back({step, overflows && !replay.overflow_is_extra, true});
  }
  return actions;
}

size_t OffsetOf(const ReplayParameter& parameter,
                const std::vector<int64_t>& index) {
  int64_t offset = 0;
  for (size_t i = 0; i < index.size(); ++i) {
    offset = offset * parameter.shape[i] + index[i];
  }
  return static_cast<size_t>(offset);
}

// The gradients of one micro-batch, in the order of the parameters.
oracle::MicroBatch GradientsOf(const std::vector<ReplayParameter>& parameters,
                               const StepsReplay& replay, const Action& action,
                               int64_t micro_batch, size_t site) {
  const auto index = static_cast<size_t>(
      (action.step - 1) * replay.micro_batches + micro_batch);
  oracle::MicroBatch batch;
  for (const ReplayParameter& parameter : parameters) {
    std::vector<float> gradient = parameter.gradients.at(index);
    for (float& value : gradient) {
      value *= static_cast<float>(replay.loss_scale);
    }
    if (action.overflows && micro_batch == 0) {
      const OverflowSite& at = replay.overflow_sites.at(site);
      if (at.parameter == parameter.name) {
        gradient.at(OffsetOf(parameter, at.index)) = at.value;
      }
    }
    batch.push_back(std::move(gradient));
  }
  return batch;
}

std::vector<ParameterSpec> ModelOf(
    const std::vector<ReplayParameter>& parameters, const StepsReplay& replay) {
  std::vector<ParameterSpec> model;
  for (const ReplayParameter& parameter : parameters) {
    const bool is_muon = IsMuon(parameter);
    model.push_back({.name = parameter.name,
                     .shape = Shape(parameter.shape),
                     .weight_dtype = is_muon ? DType::kBF16 : DType::kF32,
                     .group = is_muon ? kMuonGroup : kAdamGroup,
                     .optimizer = is_muon ? Optimizer::kMuon : Optimizer::kAdam,
                     .layout = LayoutOf(parameter, replay)});
  }
  return model;
}

ClippingMode ClippingOf(const StepsReplay& replay) {
  if (replay.clip == "true") return ClippingMode::kGradients;
  return replay.clip == "deepspeed" ? ClippingMode::kDeepSpeed
                                    : ClippingMode::kOff;
}

std::unique_ptr<StateStore> StoreOf(
    const std::vector<ReplayParameter>& parameters, const StepsReplay& replay,
    const ReplayCut& cut, std::shared_ptr<Communicator> communicator) {
  std::vector<ParameterSpec> model = ModelOf(parameters, replay);
  Partitioning partitioning =
      Partitioning::Build(model, {.stage = cut.stage,
                                  .num_ranks = communicator->size(),
                                  .sub_group_size = 1500});
  StoreOptions options{.communicator = std::move(communicator)};
  if (!cut.nvme_directory.empty()) {
    options.tiers.rest = {
        .tier = MakeNvmeTier({.directory = cut.nvme_directory}),
        .resident_below_bytes = 0};
  }
  auto store = std::make_unique<StateStore>(
      std::move(model), std::move(partitioning), std::move(options));
  for (const ReplayParameter& parameter : parameters) {
    store->Set(parameter.name, StateKind(kMaster), parameter.init);
  }
  store->record().clipping = ClippingOf(replay);
  store->record().convention = replay.accumulates
                                   ? MomentumConvention::kAccumulate
                                   : MomentumConvention::kLerp;
  return store;
}

ExecutorOptions OptionsOf(const StepsReplay& replay, const ReplayCut& cut) {
  const GroupHyperParameters muon{.weight_decay = replay.weight_decay,
                                  .momentum = replay.momentum,
                                  .nesterov = replay.nesterov,
                                  .scale = replay.match_rms
                                               ? MuonScaleMode::kMatchRms
                                               : MuonScaleMode::kSpectral};
  const GroupHyperParameters adam{.weight_decay = replay.weight_decay,
                                  .beta1 = replay.beta1,
                                  .beta2 = replay.beta2,
                                  .eps = replay.eps};
  ExecutorOptions options{.groups = {muon, adam},
                          .max_norm = replay.clip_norm,
                          .num_threads = cut.num_threads};
  options.newton_schulz.form = cut.form;
  options.newton_schulz.normalization = NewtonSchulzNormalization::kCompat;
  if (replay.polar_express) {
    options.newton_schulz.coefficients =
        NewtonSchulzCoefficients::PolarExpress5();
  }
  return options;
}

// The executors from which the tolerances come iterate square matrices in
// standard form whatever form they are asked for; the Gram form is one order
// less accurate.
ExpectedState Expected(const StepsReplay& replay, int64_t step,
                       const std::vector<ReplayParameter>& parameters,
                       NewtonSchulzForm form) {
  ExpectedState state = replay.expected.at(step);
  for (const ReplayParameter& parameter : parameters) {
    const auto matrices =
        oracle::MatricesOf(parameter.shape, RuleOf(parameter, replay));
    const bool is_square =
        std::any_of(matrices.begin(), matrices.end(),
                    [](const auto& m) { return m.rows == m.cols; });
    const auto found = state.find("param/" + parameter.name);
    if (form != NewtonSchulzForm::kStandard && is_square &&
        found != state.end()) {
      found->second.tolerance *= 10;
    }
  }
  return state;
}

StateReader ReaderOf(StateStore& store) {
  return [&store](const std::string& key) {
    const size_t slash = key.find('/');
    const std::string kind = key.substr(0, slash);
    const GatheredTensor tensor =
        store.Gather(key.substr(slash + 1),
                     kind == "param" ? StateKind(kMaster) : StateKind(kind));
    return std::vector<double>(tensor.f32().begin(), tensor.f32().end());
  };
}

Deviation Worse(Deviation a, Deviation b, int64_t step) {
  if (!(b.ratio > a.ratio)) return a;
  b.where = "step " + std::to_string(step) + ": " + b.where;
  return b;
}

oracle::StepOracle OracleOf(const std::vector<ReplayParameter>& parameters,
                            const StepsReplay& replay,
                            oracle::Mistake mistake) {
  std::vector<oracle::StepParameter> model;
  for (const ReplayParameter& parameter : parameters) {
    const bool is_muon = IsMuon(parameter);
    model.push_back(
        {.shape = parameter.shape,
         .is_muon = is_muon,
         .group = static_cast<size_t>(is_muon ? kMuonGroup : kAdamGroup),
         .matrices = RuleOf(parameter, replay),
         .master = {parameter.init.begin(), parameter.init.end()}});
  }
  const oracle::GroupRules group{.weight_decay = replay.weight_decay,
                                 .momentum = replay.momentum,
                                 .nesterov = replay.nesterov,
                                 .match_rms = replay.match_rms,
                                 .beta1 = replay.beta1,
                                 .beta2 = replay.beta2,
                                 .eps = replay.eps};
  using Clip = oracle::StepRules::Clip;
  oracle::StepRules rules{.accumulates = replay.accumulates,
                          .max_norm = replay.clip_norm};
  if (replay.clip == "true") rules.clip = Clip::kGradients;
  if (replay.clip == "deepspeed") rules.clip = Clip::kDeepSpeed;
  if (replay.polar_express) rules.iteration = oracle::PolarExpress5();
  return {std::move(model), {group, group}, std::move(rules), mistake};
}

StateReader ReaderOf(const std::vector<ReplayParameter>& parameters,
                     const oracle::StepOracle& oracle) {
  return [&](const std::string& key) {
    const size_t slash = key.find('/');
    const std::string kind = key.substr(0, slash);
    const auto at = std::find_if(
        parameters.begin(), parameters.end(),
        [&](const auto& p) { return p.name == key.substr(slash + 1); });
    const oracle::StepParameter& p =
        oracle.parameters()[static_cast<size_t>(at - parameters.begin())];
    if (kind == "param") return p.master;
    if (kind == "momentum") return p.momentum;
    return kind == "exp_avg" ? p.exp_avg : p.exp_avg_sq;
  };
}

int64_t NumGradients(const std::vector<ReplayParameter>& parameters) {
  return static_cast<int64_t>(parameters.front().gradients.size());
}

}  // namespace

Deviation Compare(const ExpectedState& expected, const StateReader& state,
                  bool strict) {
  Deviation worst;
  for (const auto& [key, tensor] : expected) {
    const std::vector<double> values = state(key);
    if (values.size() != tensor.values.size()) {
      return {.ratio = HUGE_VAL, .where = key + ": another size"};
    }
    const double tolerance =
        strict ? tensor.strict_tolerance : tensor.tolerance;
    for (size_t i = 0; i < values.size(); ++i) {
      const double error =
          std::abs(values[i] - static_cast<double>(tensor.values[i]));
      // Also true for NaN.
      const bool is_too_much = !(error <= tolerance);
      const double ratio = is_too_much && !std::isfinite(error)
                               ? HUGE_VAL
                               : error / std::max(tolerance, 1e-300);
      if (ratio > worst.ratio) worst = {ratio, key};
    }
  }
  return worst;
}

std::vector<StepsReplay> AllStepsReplays() {
  std::vector<StepsReplay> replays;
  for (const std::string& name : StepsReplayNames()) {
    replays.push_back(ReadStepsReplay(name));
  }
  StepsReplay skipping = ReadStepsReplay("base");
  skipping.name = "base-overflow-before-2";
  skipping.overflow_step = 2;
  skipping.overflow_is_extra = true;
  skipping.overflow_sites = {{"up", {3, 5}, HUGE_VALF},
                             {"vec", {2}, -HUGE_VALF},
                             {"embed", {5, 1}, std::nanf("")}};
  replays.push_back(std::move(skipping));
  // Without clipping, which would hide a factor.
  StepsReplay scaled = ReadStepsReplay("base");
  scaled.name = "base-scaled";
  scaled.loss_scale = 4096;
  replays.push_back(std::move(scaled));
  return replays;
}

Deviation RunReplay(const std::vector<ReplayParameter>& parameters,
                    const StepsReplay& replay, const ReplayCut& cut,
                    std::shared_ptr<Communicator> communicator, size_t site) {
  const auto store = StoreOf(parameters, replay, cut, std::move(communicator));
  OffloadExecutor executor(*store, OptionsOf(replay, cut));
  const bool strict = cut.form == NewtonSchulzForm::kStandard;
  Deviation worst;
  for (const Action& action :
       ActionsOf(replay, NumGradients(parameters), INT64_MAX)) {
    for (int64_t micro = 0; micro < replay.micro_batches; ++micro) {
      const oracle::MicroBatch batch =
          GradientsOf(parameters, replay, action, micro, site);
      for (size_t i = 0; i < parameters.size(); ++i) {
        executor.Accumulate(parameters[i].name,
                            {.data = std::as_bytes(std::span(batch[i])),
                             .parameter_shape = Shape(parameters[i].shape)});
      }
    }
    const auto at = static_cast<size_t>(action.step - 1);
    executor.group(kMuonGroup).lr = replay.lr_muon.at(at);
    executor.group(kAdamGroup).lr = replay.lr_adam.at(at);
    const StepReport report = executor.Step({.loss_scale = replay.loss_scale});
    EXPECT_EQ(report.overflow, action.overflows) << "step " << action.step;
    if (action.is_recorded && replay.expected.contains(action.step)) {
      const ExpectedState expected =
          Expected(replay, action.step, parameters, cut.form);
      worst = Worse(worst, Compare(expected, ReaderOf(*store), strict),
                    action.step);
    }
  }
  executor.Close();
  store->Close();
  return worst;
}

Deviation RunOracle(const std::vector<ReplayParameter>& parameters,
                    const StepsReplay& replay, oracle::Mistake mistake,
                    int64_t limit, size_t site) {
  oracle::StepOracle oracle = OracleOf(parameters, replay, mistake);
  Deviation worst;
  for (const Action& action :
       ActionsOf(replay, NumGradients(parameters), limit)) {
    std::vector<oracle::MicroBatch> batches;
    for (int64_t micro = 0; micro < replay.micro_batches; ++micro) {
      batches.push_back(GradientsOf(parameters, replay, action, micro, site));
    }
    const auto at = static_cast<size_t>(action.step - 1);
    oracle.group(kMuonGroup).lr = replay.lr_muon.at(at);
    oracle.group(kAdamGroup).lr = replay.lr_adam.at(at);
    oracle.Step(batches, replay.loss_scale);
    const auto expected = replay.expected.find(action.step);
    if (action.is_recorded && expected != replay.expected.end()) {
      worst = Worse(worst,
                    Compare(expected->second, ReaderOf(parameters, oracle),
                            /*strict=*/false),
                    action.step);
    }
  }
  return worst;
}

}  // namespace muonstore::testutil
