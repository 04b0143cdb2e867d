#include "src/checkpoint/load_record.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "src/base/str.h"
#include "src/checkpoint/counters.h"
#include "src/checkpoint/origin.h"
#include "src/state/scalar_map.h"

namespace muonstore {
namespace {

int64_t CounterOf(const CheckpointInfo& info, std::string_view name) {
  const Scalar* value = FindScalar(info.counters, name);
  const auto* whole = value ? std::get_if<int64_t>(value) : nullptr;
  return whole ? std::max<int64_t>(*whole, 0) : 0;
}

class RecordPlanner {
 public:
  RecordPlanner(const StateStore& store, const Checkpoint& checkpoint,
                const LoadOptions& options, LoadPlan& plan)
      : store_(store),
        checkpoint_(checkpoint),
        options_(options),
        plan_(plan) {}

  void SetMomentumForm() {
    const auto is_read_momentum = [](const LoadItem& item) {
      return item.kind == kMomentum && item.tensor.has_value();
    };
    if (!info().momentum || std::none_of(plan_.items.begin(), plan_.items.end(),
                                         is_read_momentum)) {
      return;
    }
    if (plan_.record.convention != info().momentum->convention) {
      plan_.record.convention = info().momentum->convention;
      plan_.report.notes.push_back(StrCat(
          "momentum follows M = mu M + ",
          plan_.record.convention == MomentumConvention::kLerp ? "(1 - mu) G"
                                                               : "G",
          ", as the checkpoint records, and not what the store had before"));
    }
    if (info().momentum->unit == MomentumUnit::kTrue) return;
    const double scale = MomentumScaleOrThrow();
    for (LoadItem& item : plan_.items) {
      if (is_read_momentum(item)) item.divisor = scale;
    }
    plan_.report.notes.push_back(
        StrCat("momentum was divided by the loss scale ", scale, ", which ",
               info().momentum->unit_scale ? "the checkpoint proves"
                                           : "LoadOptions gave"));
  }

  void SetSteps() {
    StoreRecord& record = plan_.record;
    record.skipped_steps = CounterOf(info(), "skipped_steps");
    record.steps =
        std::max<int64_t>(info().step.value_or(0) - record.skipped_steps, 0);
    if (!info().step) {
      for (const ParamGroup& group : info().groups) {
        record.steps = std::max(record.steps, group.step.value_or(0));
      }
    }
    std::set<int32_t> groups;
    for (const LoadItem& item : plan_.items) {
      groups.insert(spec(item.parameter).group);
    }
    for (const int32_t group : groups) {
      const auto at = static_cast<size_t>(group);
      if (record.group_steps.size() <= at) record.group_steps.resize(at + 1);
      record.group_steps[at] = StepOf(group).value_or(record.steps);
    }
  }

  void SetClipping() {
    if (const Scalar* stored = FindScalar(info().counters, kClippingCounter)) {
      plan_.record.clipping = ToClippingMode(*stored);
    }
    if (options_.clipping) plan_.record.clipping = *options_.clipping;
    const bool is_known =
        options_.clipping || FindScalar(info().counters, kClippingCounter);
    if (is_known || !IsDeepSpeedRun(info())) return;
    plan_.record.clipping = ClipsRawGradients(info())
                                ? ClippingMode::kGradients
                                : ClippingMode::kDeepSpeed;
    plan_.report.notes.push_back(
        StrCat("clipping mode is ", ClippingModeName(plan_.record.clipping),
               ", as the run of ", info().optimizer_class,
               " had it; in C++ StoreRecord::clipping changes it"));
  }

 private:
  ClippingMode ToClippingMode(const Scalar& value) const {
    const auto* name = std::get_if<std::string>(&value);
    for (const ClippingMode mode :
         {ClippingMode::kGradients, ClippingMode::kDeepSpeed,
          ClippingMode::kOff}) {
      if (name != nullptr && *name == ClippingModeName(mode)) return mode;
    }
    throw Error(ErrorCode::kDataLoss, "no such clipping mode",
                {.file = info().path,
                 .expected = "gradients, deepspeed or off",
                 .found = ScalarToString(value)});
  }

  std::span<const CheckpointTensor> tensors() const {
    return checkpoint_.tensors();
  }
  const CheckpointInfo& info() const { return checkpoint_.info(); }
  const ParameterSpec& spec(int32_t parameter) const {
    return store_.parameters()[static_cast<size_t>(parameter)];
  }

  double MomentumScaleOrThrow() const {
    const MomentumRecord& record = *info().momentum;
    const std::optional<double> scale =
        record.unit_scale ? record.unit_scale : options_.momentum_scale;
    if (!scale) {
      throw Error(
          ErrorCode::kUnsupported,
          "momentum is in units of a loss scale that the checkpoint does not "
          "prove; give the scale that its gradients had as "
          "LoadOptions::momentum_scale",
          {.file = info().path,
           .tensor = std::string(kMomentum),
           .found = record.scale_in_file
                        ? StrCat("loss scale ", *record.scale_in_file,
                                 " at the end of the run")
                        : "no loss scale"});
    }
    // Beyond these, f32 momentum divided by it would be nothing but zeros or
    // infinities.
    constexpr double kLargest = 0x1p64;
    if (!(*scale >= 1 / kLargest && *scale <= kLargest)) {
      throw Error(record.unit_scale ? ErrorCode::kDataLoss
                                    : ErrorCode::kInvalidArgument,
                  "a momentum scale is a positive number, as loss scales are",
                  {.file = record.unit_scale ? info().path : "",
                   .tensor = std::string(kMomentum),
                   .expected = "2^-64 to 2^64",
                   .found = FormatNumber(*scale)});
    }
    return *scale;
  }

  // Of a param group of the store, by the groups of the checkpoint that its
  // parameters come from; Muon groups count none.
  std::optional<int64_t> StepOf(int32_t group) {
    std::optional<int64_t> step;
    bool is_first = true;
    for (const LoadItem& item : plan_.items) {
      if (item.kind != kMaster || spec(item.parameter).group != group) continue;
      const std::optional<int64_t> own = StepOfTensor(*item.tensor, group);
      if (!is_first && own != step) FailDifferentSteps(group, item);
      step = own;
      is_first = false;
    }
    return step;
  }

  std::optional<int64_t> StepOfTensor(size_t tensor, int32_t group) {
    const CheckpointTensor& master = tensors()[tensor];
    if (master.optimizer != Optimizer::kAdam) return std::nullopt;
    const auto at = static_cast<size_t>(master.group);
    if (master.group >= 0 && at < info().groups.size() &&
        info().groups[at].step) {
      return info().groups[at].step;
    }
    const std::string what = StrCat("group ", group, "/step");
    if (!options_.allow_missing_state) {
      throw Error(ErrorCode::kNotFound,
                  "the checkpoint does not tell the step that Adam's bias "
                  "correction counts; allow_missing_state starts "
                  "it at 0",
                  {.file = info().path, .tensor = what});
    }
    std::vector<std::string>& missing = plan_.report.missing;
    if (std::find(missing.begin(), missing.end(), what) == missing.end()) {
      missing.push_back(what);
    }
    return 0;
  }

  [[noreturn]] void FailDifferentSteps(int32_t group,
                                       const LoadItem& item) const {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("param group ", group,
                       " holds parameters whose steps differ in the "
                       "checkpoint; keep its groups"),
                {.file = info().path, .tensor = spec(item.parameter).name});
  }

  const StateStore& store_;
  const Checkpoint& checkpoint_;
  const LoadOptions& options_;
  LoadPlan& plan_;
};

}  // namespace

void PlanRecord(const StateStore& store, const Checkpoint& checkpoint,
                const LoadOptions& options, LoadPlan& plan) {
  RecordPlanner planner(store, checkpoint, options, plan);
  planner.SetMomentumForm();
  planner.SetSteps();
  planner.SetClipping();
}

}  // namespace muonstore
