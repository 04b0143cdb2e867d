#include "src/checkpoint/load_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "src/base/str.h"
#include "src/checkpoint/origin.h"

namespace muonstore {
namespace {

constexpr size_t kNamesShown = 5;

int64_t CounterOf(const CheckpointInfo& info, std::string_view name) {
  const Scalar* value = FindScalar(info.counters, name);
  const auto* whole = value ? std::get_if<int64_t>(value) : nullptr;
  return whole ? std::max<int64_t>(*whole, 0) : 0;
}

class Planner {
 public:
  Planner(const StateStore& store, const Checkpoint& checkpoint,
          const LoadOptions& options)
      : store_(store), checkpoint_(checkpoint), options_(options) {
    const auto tensors = checkpoint.tensors();
    for (size_t i = 0; i < tensors.size(); ++i) {
      index_.emplace(tensors[i].key, i);
    }
    plan_.record = store.record();
  }

  LoadPlan Run() {
    const auto parameters = store_.parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].shape.num_elements() > 0) {
        AddParameter(static_cast<int32_t>(i));
      }
    }
    SetMomentumForm();
    SetSteps();
    SetClipping();
    NoteWhatIsLeftOut();
    return std::move(plan_);
  }

 private:
  std::span<const CheckpointTensor> tensors() const {
    return checkpoint_.tensors();
  }
  const CheckpointInfo& info() const { return checkpoint_.info(); }
  const ParameterSpec& spec(int32_t parameter) const {
    return store_.parameters()[static_cast<size_t>(parameter)];
  }

  std::optional<size_t> Find(const std::string& name,
                             std::string_view kind) const {
    const auto alias = info().aliases.find(name);
    const std::string& kept =
        alias == info().aliases.end() ? name : alias->second;
    const auto found = index_.find(TensorKey{kept, StateKind(kind)});
    return found == index_.end() ? std::nullopt : std::optional(found->second);
  }

  void AddParameter(int32_t parameter) {
    const std::vector<StateKind> kinds = store_.kinds(parameter);
    if (kinds.empty()) return;  // Frozen here.
    const std::string& name = spec(parameter).name;
    const auto master = Find(name, kMaster);
    if (!master) FailWithoutMaster(name);
    RequireOptimizer(parameter, *master);
    for (const StateKind& kind : kinds) {
      if (kind == kGradient) continue;
      if (kind == kWeight) {
        AddWeight(parameter, *master);
      } else {
        AddState(parameter, kind);
      }
    }
  }

  [[noreturn]] void FailWithoutMaster(const std::string& name) const {
    std::string found = "no tensor of this name";
    for (const CheckpointTensor& tensor : tensors()) {
      if (tensor.key.parameter == name) {
        found = StrCat("only ", tensor.key.ToString(),
                       "; a frozen parameter "
                       "or a file of weights alone has no master");
        break;
      }
    }
    throw Error(ErrorCode::kNotFound, "the checkpoint has no master weight",
                {.file = info().path, .tensor = name, .found = found});
  }

  void RequireOptimizer(int32_t parameter, size_t master) const {
    const Optimizer stored = tensors()[master].optimizer;
    if (stored == spec(parameter).optimizer) return;
    throw Error(
        ErrorCode::kInvalidArgument,
        "the checkpoint has this parameter under another optimizer; SpecsOf "
        "gives the parameters as it has them",
        {.file = info().path,
         .tensor = spec(parameter).name,
         .expected = std::string(OptimizerName(spec(parameter).optimizer)),
         .found = std::string(OptimizerName(stored))});
  }

  void RequireReadable(int32_t parameter, size_t index) const {
    const CheckpointTensor& tensor = tensors()[index];
    if (tensor.shape != spec(parameter).shape) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the checkpoint's tensor has another shape",
                  {.file = info().path,
                   .tensor = tensor.key.ToString(),
                   .expected = spec(parameter).shape.ToString(),
                   .found = tensor.shape.ToString()});
    }
    if (!IsFloatingPoint(tensor.dtype)) {
      throw Error(ErrorCode::kUnsupported,
                  "optimizer state of this dtype has no meaning here",
                  {.file = info().path,
                   .tensor = tensor.key.ToString(),
                   .expected = "a real floating-point dtype",
                   .found = std::string(DTypeName(tensor.dtype))});
    }
  }

  void AddWeight(int32_t parameter, size_t master) {
    const DType dtype = spec(parameter).weight_dtype;
    const auto weight = Find(spec(parameter).name, kWeight);
    if (weight && tensors()[*weight].dtype == dtype &&
        tensors()[*weight].missing.empty()) {
      RequireReadable(parameter, *weight);
      Add(parameter, StateKind(kWeight), *weight);
      return;
    }
    if (weight && tensors()[*weight].dtype != dtype) {
      rounded_weights_.push_back(spec(parameter).name);
    }
    Add(parameter, StateKind(kWeight), master);
  }

  void AddState(int32_t parameter, const StateKind& kind) {
    const std::string& name = spec(parameter).name;
    const auto index = Find(name, kind);
    if (!index) {
      AddMissing(parameter, kind);
      return;
    }
    RequireReadable(parameter, *index);
    for (const ElementRange& range : tensors()[*index].missing) {
      NoteLostElements(*index, range);
    }
    Add(parameter, kind, *index);
  }

  void Add(int32_t parameter, const StateKind& kind, size_t tensor) {
    if (kind != kWeight && tensors()[tensor].dtype == DType::kF64) {
      narrowed_.push_back(tensors()[tensor].key.ToString());
    }
    plan_.items.push_back(
        {.parameter = parameter, .kind = kind, .tensor = tensor});
  }

  void AddMissing(int32_t parameter, const StateKind& kind) {
    const TensorKey key{spec(parameter).name, kind};
    if (!options_.allow_missing_state) {
      throw Error(ErrorCode::kNotFound,
                  "the checkpoint does not hold this state; "
                  "LoadOptions::allow_missing_state starts it as zeros",
                  {.file = info().path, .tensor = key.ToString()});
    }
    plan_.report.missing.push_back(key.ToString());
    plan_.items.push_back({.parameter = parameter, .kind = kind});
  }

  void NoteLostElements(size_t tensor, const ElementRange& range) {
    const TensorKey& key = tensors()[tensor].key;
    if (key.kind == kMaster || !options_.allow_missing_state) {
      throw Error(ErrorCode::kDataLoss,
                  StrCat("the checkpoint does not hold elements ", range.begin,
                         " to ", range.end - 1,
                         key.kind == kMaster
                             ? ""
                             : "; LoadOptions::allow_missing_state starts "
                               "them as zeros"),
                  {.file = info().path, .tensor = key.ToString()});
    }
    plan_.report.missing.push_back(StrCat(key.ToString(), " elements ",
                                          range.begin, " to ", range.end - 1));
  }

  void SetMomentumForm() {
    const auto is_read_momentum = [](const LoadItem& item) {
      return item.kind == kMomentum && item.tensor.has_value();
    };
    if (!info().momentum || std::none_of(plan_.items.begin(), plan_.items.end(),
                                         is_read_momentum)) {
      return;
    }
    plan_.record.convention = info().momentum->convention;
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
    if (!std::isfinite(*scale) || !(*scale > 0)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "a momentum scale is a positive number",
                  {.tensor = std::string(kMomentum),
                   .expected = "> 0",
                   .found = FormatNumber(*scale)});
    }
    return *scale;
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
                  "correction counts; LoadOptions::allow_missing_state starts "
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

  void SetClipping() {
    if (!IsDeepSpeedRun(info())) return;
    plan_.record.clipping = ClipsRawGradients(info())
                                ? ClippingMode::kGradients
                                : ClippingMode::kDeepSpeed;
    plan_.report.notes.push_back(
        StrCat("clipping mode is ", ClippingModeName(plan_.record.clipping),
               ", as the run of ", info().optimizer_class,
               " had it; StoreRecord::clipping changes it"));
  }

  void NoteNames(std::vector<std::string> names, std::string_view what) {
    if (names.empty()) return;
    std::sort(names.begin(), names.end());
    plan_.report.notes.push_back(
        StrCat(what, ": ", JoinNames(names, kNamesShown)));
  }

  void NoteWhatIsLeftOut() {
    NoteNames(rounded_weights_,
              "compute weights of another dtype than the checkpoint's were "
              "rounded from the master");
    NoteNames(narrowed_, "f64 state was rounded to f32");
    std::set<std::string, std::less<>> known;
    for (const LoadItem& item : plan_.items) {
      const std::string& name = spec(item.parameter).name;
      const auto alias = info().aliases.find(name);
      known.insert(alias == info().aliases.end() ? name : alias->second);
    }
    std::vector<std::string> unused;
    for (const CheckpointTensor& tensor : tensors()) {
      if (tensor.key.kind == kMaster && !known.contains(tensor.key.parameter) &&
          tensor.shape.num_elements() > 0) {
        unused.push_back(tensor.key.parameter);
      }
    }
    NoteNames(std::move(unused), "parameters that the store does not train");
  }

  const StateStore& store_;
  const Checkpoint& checkpoint_;
  const LoadOptions& options_;
  std::map<TensorKey, size_t> index_;
  std::vector<std::string> rounded_weights_;
  std::vector<std::string> narrowed_;
  LoadPlan plan_;
};

}  // namespace

LoadPlan PlanLoad(const StateStore& store, const Checkpoint& checkpoint,
                  const LoadOptions& options) {
  return Planner(store, checkpoint, options).Run();
}

}  // namespace muonstore
