#include "converters/target_layout.h"

#include <algorithm>
#include <utility>

#include "converters/like_layout.h"
#include "converters/parameter_order.h"
#include "converters/stored_layout.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

constexpr const char* kSortedNote =
    "Muon parameters sorted by shape, as DeepSpeed has them without zero.Init";
constexpr const char* kModuleNote =
    "Muon parameters in the module's order, as under zero.Init";
constexpr const char* kStoredNote = "Muon parameters in the source's order";

Error Usage(std::string message, std::string expected = {},
            std::string found = {}) {
  return Error(ErrorCode::kInvalidArgument, std::move(message),
               {.expected = std::move(expected), .found = std::move(found)});
}

// As the source is, where the checkpoint itself tells it.
RunSettings SettingsOf(const Checkpoint& source, const StoredLayout& stored) {
  const CheckpointInfo& info = source.info();
  RunSettings settings = CarriedSettings(source);
  settings.stage = info.stage;
  settings.num_ranks = info.num_ranks;
  settings.precision = info.precision.empty() ? "fp32" : info.precision;
  settings.offload = info.offload.empty() ? "none" : info.offload;
  settings.f32_gradients = settings.f32_gradients.value_or(false) ||
                           info.optimizer_class == kBf16Optimizer;
  if (info.stage == 3) {
    settings.sub_group_size = SubGroupSizeOf(
        stored, info.num_ranks,
        settings.sub_group_size.value_or(ZeroRule().sub_group_size));
  }
  const bool has_paddings = std::any_of(
      stored.groups.begin(), stored.groups.end(), [](const FlatGroup& group) {
        return std::any_of(group.pad_after.begin(), group.pad_after.end(),
                           [](int64_t pad) { return pad > 0; });
      });
  if (has_paddings) settings.parameter_alignment = true;
  return settings;
}

std::string OptimizerClass(const RunSettings& settings) {
  if (settings.stage == 3) return "DeepSpeedZeroOptimizer_Stage3";
  const bool bf16_optimizer =
      settings.stage == 1 && settings.precision == "bf16" &&
      settings.offload == "none" && settings.f32_gradients.value_or(false);
  return bf16_optimizer ? kBf16Optimizer : "DeepSpeedZeroOptimizer";
}

// In the name of what asks for another one.
void RequireSamePrecision(const CheckpointInfo& source,
                          const LayoutRequest& request,
                          const TargetLayout& layout) {
  const std::string precision =
      source.precision.empty() ? "fp32" : source.precision;
  if (layout.precision == precision) return;
  throw Error(ErrorCode::kUnsupported,
              "a change of precision is not supported: weights, frozen "
              "tensors, the momentum's unit and the run's config would have "
              "to change together. Resume in the source's precision (in a "
              "config \"bf16\" or \"fp16\": {\"enabled\": true}; without "
              "either it is fp32)",
              {.file = request.like != nullptr ? request.like->info().path
                                               : source.path,
               .expected = precision,
               .found = layout.precision});
}

class Chooser {
 public:
  Chooser(const Checkpoint& source, const LayoutRequest& request)
      : source_(source),
        request_(request),
        stored_(StoredLayoutOf(source)),
        kept_(SettingsOf(source, stored_)),
        order_(FindOrder(source, stored_, kept_.round_robin)) {
    if (kept_.stage.value_or(3) < 3) kept_.round_robin = order_.round_robin;
    wanted_ = Merge(request.settings, kept_);
  }

  LayoutChoice Run() {
    CheckSettings();
    const auto [specs, muon_order] = ChooseOrder();
    ZeroRule rule{
        .stage = *wanted_.stage,
        .num_ranks = *wanted_.num_ranks,
        .muon_order = muon_order,
        .round_robin = wanted_.round_robin.value_or(false),
        .parameter_alignment = wanted_.parameter_alignment.value_or(false)};
    rule.sub_group_size = wanted_.sub_group_size.value_or(rule.sub_group_size);
    const bool keep = SameCut() && SameOrderAsStored(specs, muon_order);
    Partitioning partitioning =
        keep ? Partitioning::FromGroups(stored_.specs, rule, stored_.groups)
             : Partitioning::Build(specs, rule);
    if (keep) notes_.emplace_back("cut as the source");
    return {.layout = {.specs = keep ? stored_.specs : specs,
                       .rule = rule,
                       .partitioning = std::move(partitioning),
                       .precision = *wanted_.precision,
                       .offload = *wanted_.offload,
                       .optimizer_class = OptimizerClass(wanted_),
                       .config_stage = ConfigStage()},
            .notes = std::move(notes_)};
  }

 private:
  using Specs = std::vector<ParameterSpec>;

  void CheckSettings() {
    if (stored_.specs.empty()) {
      throw Error(ErrorCode::kUnsupported,
                  "the source holds no masters of trained parameters: weights "
                  "alone make no checkpoint that training resumes from",
                  {.file = source_.info().path});
    }
    if (!wanted_.stage) {
      throw Usage("the source has no ZeRO stage; --stage says which to write");
    }
    if (*wanted_.stage < 1 || *wanted_.stage > 3) {
      throw Usage("the stage makes no sense", "1, 2 or 3",
                  StrCat(*wanted_.stage));
    }
    if (request_.zero_init.value_or(false) && *wanted_.stage < 3) {
      throw Usage(StrCat("zero.Init exists at stage 3 only; leave out "
                         "--zero-init, or write --stage 3"),
                  "stage 3", StrCat("stage ", *wanted_.stage));
    }
  }

  // A run of BF16_Optimizer goes on as one with its config.
  std::optional<int32_t> ConfigStage() const {
    const bool goes_on = source_.info().optimizer_class == kBf16Optimizer &&
                         OptimizerClass(wanted_) == kBf16Optimizer &&
                         !request_.settings.stage;
    return goes_on ? CarriedSettings(source_).stage : std::nullopt;
  }

  std::pair<Specs, MuonOrder> Choose(const char* note, const Specs& specs,
                                     MuonOrder order) {
    if (HasMuon()) notes_.emplace_back(note);
    return {specs, order};
  }

  bool HasMuon() const {
    return std::any_of(stored_.specs.begin(), stored_.specs.end(),
                       [](const ParameterSpec& spec) {
                         return spec.optimizer == Optimizer::kMuon;
                       });
  }

  // Sorting is stable, so that it may start from any of the given orders.
  std::pair<Specs, MuonOrder> Sort() {
    return Choose(kSortedNote, order_.as_stored, MuonOrder::kSortedByShape);
  }

  std::pair<Specs, MuonOrder> ChooseOrder() {
    const bool from_stage3 = kept_.stage == 3;
    if (*wanted_.stage < 3) {
      const bool is_own_order = !from_stage3 && !order_.is_sorted;
      return is_own_order
                 ? Choose(kStoredNote, order_.as_stored, MuonOrder::kAsGiven)
                 : Sort();
    }
    if (order_.is_sorted && order_.is_by_module) return Sort();
    if (!request_.zero_init && from_stage3) {
      const char* note = order_.is_sorted      ? kSortedNote
                         : order_.is_by_module ? kModuleNote
                                               : kStoredNote;
      return Choose(note, order_.as_stored, MuonOrder::kAsGiven);
    }
    if (!request_.zero_init) ThrowUnsettled();
    if (!*request_.zero_init) return Sort();
    if (!order_.by_module) {
      throw Usage(
          "the source does not tell the module's order of its parameters; "
          "--like with a checkpoint of the run that will load this one does");
    }
    return Choose(kModuleNote, *order_.by_module, MuonOrder::kAsGiven);
  }

  [[noreturn]] static void ThrowUnsettled() {
    throw Usage(
        "the order of the Muon parameters at stage 3 is not settled: DeepSpeed "
        "keeps the module's order if the model is built under "
        "deepspeed.zero.Init and sorts by shape if not, and loads the wrong "
        "one in silence. Say --zero-init yes (Hugging Face's from_pretrained "
        "with a stage-3 config counts) or --zero-init no; or save any "
        "checkpoint with the run that will load this one, and give it to "
        "--like");
  }

  // Stage, ranks and everything else that moves elements are the source's.
  bool SameCut() const {
    const bool same_form = (*wanted_.stage == 3) == (kept_.stage == 3);
    const bool same_options =
        *wanted_.stage == 3 ? wanted_.sub_group_size == kept_.sub_group_size
                            : wanted_.round_robin == kept_.round_robin &&
                                  wanted_.parameter_alignment.value_or(false) ==
                                      kept_.parameter_alignment.value_or(false);
    return !stored_.groups.empty() && same_form && same_options &&
           wanted_.num_ranks == kept_.num_ranks;
  }

  bool SameOrderAsStored(const Specs& specs, MuonOrder order) const {
    if (order == MuonOrder::kSortedByShape) return order_.is_sorted;
    return std::equal(specs.begin(), specs.end(), order_.as_stored.begin(),
                      order_.as_stored.end(),
                      [](const ParameterSpec& a, const ParameterSpec& b) {
                        return a.name == b.name;
                      });
  }

  const Checkpoint& source_;
  const LayoutRequest& request_;
  StoredLayout stored_;
  RunSettings kept_;
  RunSettings wanted_;
  ParameterOrder order_;
  std::vector<std::string> notes_;
};

}  // namespace

LayoutChoice ChooseLayout(const Checkpoint& source,
                          const LayoutRequest& request) {
  LayoutChoice choice = request.like != nullptr
                            ? LayoutLike(source, request)
                            : Chooser(source, request).Run();
  RequireSamePrecision(source.info(), request, choice.layout);
  return choice;
}

}  // namespace muonstore
