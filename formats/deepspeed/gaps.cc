#include "formats/deepspeed/gaps.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "formats/deepspeed/values.h"
#include "src/base/str.h"
#include "src/state/scalar_map.h"

namespace muonstore::deepspeed {
namespace {

using Severity = Finding::Severity;

bool HasKind(const std::vector<GroupKind>& kinds, std::string_view kind) {
  return std::any_of(kinds.begin(), kinds.end(),
                     [&](const GroupKind& k) { return k.kind == kind; });
}

class Search {
 public:
  Search(const Parts& parts, const CheckpointInfo& info)
      : parts_(parts), info_(info) {}

  std::vector<Finding> Run() {
    // Before the first step there is no state yet.
    if (info_.step.value_or(1) > parts_.model->skipped_steps.value_or(0)) {
      for (size_t g = 0; g < parts_.table->kinds.size(); ++g) {
        CheckMomentum(g);
        CheckMoments(g);
        CheckStep(g);
      }
    }
    CheckCounters();
    CheckModule();
    CheckTies();
    CheckStage();
    return std::move(findings_);
  }

 private:
  void Add(Severity severity, std::string code, std::string message,
           ErrorPlace place = {}) {
    findings_.push_back({.severity = severity,
                         .code = std::move(code),
                         .message = std::move(message),
                         .place = std::move(place)});
  }

  const ParamGroup& GroupOf(size_t flat_group) const {
    return info_.groups[static_cast<size_t>(
        parts_.layout->partitioning.groups()[flat_group].group)];
  }

  void CheckMomentum(size_t flat_group) {
    const ParamGroup& group = GroupOf(flat_group);
    if (group.optimizer != Optimizer::kMuon ||
        HasKind(parts_.table->kinds[flat_group], kMomentum)) {
      return;
    }
    const RankStates& rank = parts_.ranks[0];
    const auto& absent = rank.without_momentum;
    std::string why;
    if (std::find(absent.begin(), absent.end(), group.name) != absent.end()) {
      why =
          ": nor was it in the source that this one was converted from; "
          "DeepSpeed resumes with zero momentum";
    } else if (NeverStoresMomentum(info_.offload, rank.version)) {
      why = StrCat(": with CPU offload ", info_.producer, " never stored it");
    }
    Add(why.empty() ? Severity::kFault : Severity::kWarning, "momentum_missing",
        StrCat("the momentum of ", group.name, " is not in the checkpoint",
               why));
  }

  void CheckMoments(size_t flat_group) {
    const ParamGroup& group = GroupOf(flat_group);
    for (const std::string_view kind : {kExpAvg, kExpAvgSq}) {
      if (group.optimizer == Optimizer::kAdam &&
          !HasKind(parts_.table->kinds[flat_group], kind)) {
        Add(Severity::kFault, "state_missing",
            StrCat("the ", kind, " of ", group.name,
                   " is not in the checkpoint"));
      }
    }
  }

  // The ranks agree on it (agreement.h), but a rank may have no state.
  void CheckStep(size_t flat_group) {
    const ParamGroup& group = GroupOf(flat_group);
    const auto rank = std::find_if(parts_.ranks.begin(), parts_.ranks.end(),
                                   [&](const RankStates& r) {
                                     return flat_group < r.flat.size() &&
                                            !r.flat[flat_group].buffers.empty();
                                   });
    if (group.optimizer != Optimizer::kAdam || rank == parts_.ranks.end()) {
      return;
    }
    const Scalar* step = FindScalar(rank->flat[flat_group].scalars, "step");
    if (step != nullptr && std::holds_alternative<int64_t>(*step) &&
        std::get<int64_t>(*step) >= 0) {
      return;
    }
    // Old optimizers count in the param group.
    const Scalar* own = FindScalar(group.hyper_parameters, "step");
    const bool counted = own != nullptr &&
                         std::holds_alternative<int64_t>(*own) &&
                         std::get<int64_t>(*own) > 0;
    Add(counted ? Severity::kWarning : Severity::kFault, "step_missing",
        StrCat("the state of ", group.name, " has no usable step",
               counted ? "; the param group counts one" : ""),
        {.file = rank->file->path(),
         .expected = "a count",
         .found = step == nullptr ? "nothing" : ScalarToString(*step)});
  }

  void CheckCounters() {
    const auto root = parts_.model->file->root();
    for (const char* name :
         {"global_steps", "skipped_steps", "global_samples"}) {
      const auto value = root.Find(name);
      const bool usable =
          value && value->is(torchfile::ValueType::kInt) && value->AsInt() >= 0;
      const bool needed = std::string_view(name) == "global_steps";
      if (usable || (!value && !needed)) {
        continue;
      }
      Add(needed ? Severity::kFault : Severity::kWarning, "counter_missing",
          StrCat(name, " has no usable value"),
          {.file = parts_.model->file->path(),
           .expected = "a count",
           .found = value ? value->Describe(60) : "nothing"});
    }
  }

  void Lacks(const std::string& name, std::string_view kind) {
    Add(Severity::kFault, StrCat(kind, "_missing"),
        StrCat("module lacks the ", kind),
        {.file = parts_.model->file->path(),
         .tensor = TensorKey{name, StateKind(kind)}.ToString()});
  }

  void CheckModule() {
    std::unordered_set<std::string_view> names;
    for (const NamedTensor& named : parts_.model->module) {
      names.insert(named.name);
    }
    for (const ParameterSpec& spec : parts_.layout->specs) {
      // Old versions list parameters without elements and do not store them.
      if (spec.shape.num_elements() > 0 && !names.contains(spec.name)) {
        Lacks(spec.name, kWeight);
      }
    }
    for (const NamedShape& shape : parts_.model->frozen_shapes) {
      // In stage 3 their pieces are what counts.
      if (info_.stage < 3 && !names.contains(shape.name)) {
        Lacks(shape.name, kWeight);
      }
    }
    for (const std::string& name : parts_.model->buffer_names) {
      if (!names.contains(name)) {
        Lacks(name, kBuffer);
      }
    }
  }

  void CheckTies() {
    for (const auto& [dropped, kept] : parts_.model->broken_ties) {
      Add(Severity::kFault, "alias_contradicts",
          StrCat("shared_params ties ", Printable(dropped), " to ",
                 Printable(kept),
                 ", but the first has state of its own or the second does not "
                 "exist; the tie is ignored"),
          {.file = parts_.model->file->path()});
    }
  }

  void CheckStage() {
    const RankStates& rank = parts_.ranks[0];
    // BF16_Optimizer writes files of stage 1 at any stage.
    if (rank.writer != Writer::kBf16 && rank.config_stage &&
        *rank.config_stage != rank.stage) {
      Add(Severity::kWarning, "stage_differs",
          "the file's ZeRO stage is not that of its ds_config; the file's is "
          "taken",
          {.file = rank.file->path(),
           .expected = StrCat("stage ", *rank.config_stage),
           .found = StrCat("stage ", rank.stage)});
    }
  }

  const Parts& parts_;
  const CheckpointInfo& info_;
  std::vector<Finding> findings_;
};

}  // namespace

bool NeverStoresMomentum(std::string_view offload, std::string_view version) {
  return offload != "none" && VersionBefore(version, {0, 19, 7});
}

std::vector<Finding> FindGaps(const Parts& parts, const CheckpointInfo& info) {
  return Search(parts, info).Run();
}

}  // namespace muonstore::deepspeed
