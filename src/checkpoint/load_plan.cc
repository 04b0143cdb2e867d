#include "src/checkpoint/load_plan.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "src/base/str.h"
#include "src/checkpoint/load_record.h"
#include "src/state/tensor_index.h"

namespace muonstore {
namespace {

constexpr size_t kNamesShown = 5;

class Planner {
 public:
  Planner(const StateStore& store, const Checkpoint& checkpoint,
          const LoadOptions& options)
      : store_(store),
        checkpoint_(checkpoint),
        options_(options),
        index_(checkpoint) {
    plan_.record = store.record();
  }

  LoadPlan Run() {
    const auto parameters = store_.parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].shape.num_elements() > 0) {
        AddParameter(static_cast<int32_t>(i));
      }
    }
    PlanRecord(store_, checkpoint_, options_, plan_);
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
    return index_.Find({name, StateKind(kind)});
  }

  void AddParameter(int32_t parameter) {
    const std::vector<StateKind> kinds = store_.kinds(parameter);
    if (kinds.empty()) return;  // Frozen here.
    const std::string& name = spec(parameter).name;
    const auto master = Find(name, kMaster);
    if (!master) FailWithoutMaster(name);
    NoteLayout(parameter);
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
        "the checkpoint has this parameter under another optimizer; give it "
        "to that one (use_muon in Python, ParameterSpec::optimizer in C++)",
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

  // A checkpoint that was opened by the headers of one rank throws here, while
  // nothing is changed.
  void RequireWhole(size_t index) const {
    const CheckpointTensor& tensor = tensors()[index];
    const Coverage coverage = CheckCoverage(checkpoint_.fragments(index),
                                            tensor.shape.num_elements());
    if (coverage.overlapping.empty() && coverage.outside.empty() &&
        (coverage.missing.empty() || !tensor.missing.empty())) {
      return;
    }
    throw Error(ErrorCode::kDataLoss,
                "the checkpoint does not hold every element of this tensor "
                "once",
                {.file = info().path, .tensor = tensor.key.ToString()});
  }

  void Add(int32_t parameter, const StateKind& kind, size_t tensor) {
    RequireWhole(tensor);
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
                  "allow_missing_state starts it as zeros",
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
                         key.kind == kMaster ? ""
                                             : "; allow_missing_state starts "
                                               "them as zeros"),
                  {.file = info().path, .tensor = key.ToString()});
    }
    plan_.report.missing.push_back(StrCat(key.ToString(), " elements ",
                                          range.begin, " to ", range.end - 1));
  }

  // Where the format records how parameters were seen.
  void NoteLayout(int32_t parameter) {
    if (info().format != "native" ||
        spec(parameter).optimizer != Optimizer::kMuon) {
      return;
    }
    const auto found = info().matrix_layouts.find(spec(parameter).name);
    const std::string then =
        found == info().matrix_layouts.end() ? "whole" : found->second;
    const std::string now = spec(parameter).layout.ToString();
    if (then == now) return;
    other_layouts_.push_back(
        StrCat(spec(parameter).name, " (", then, ", here ", now, ")"));
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
    NoteNames(other_layouts_,
              "matrices are not those that the checkpoint's run saw");
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
  TensorIndex index_;
  std::vector<std::string> rounded_weights_;
  std::vector<std::string> narrowed_;
  std::vector<std::string> other_layouts_;
  LoadPlan plan_;
};

}  // namespace

LoadPlan PlanLoad(const StateStore& store, const Checkpoint& checkpoint,
                  const LoadOptions& options) {
  return Planner(store, checkpoint, options).Run();
}

}  // namespace muonstore
