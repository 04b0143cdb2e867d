#include "converters/like_layout.h"

#include <algorithm>
#include <map>
#include <utility>

#include "converters/run_settings.h"
#include "converters/stored_layout.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

// Names that a message lists of each side.
constexpr size_t kMaxNames = 8;

class LikeChooser {
 public:
  LikeChooser(const Checkpoint& source, const LayoutRequest& request)
      : source_(source),
        like_(*request.like),
        request_(request),
        stored_(StoredLayoutOf(source)),
        target_(StoredLayoutOf(like_)) {}

  LayoutChoice Run() {
    const CheckpointInfo& info = like_.info();
    if (target_.groups.empty() || !info.stage) {
      throw Refuse("--like names a checkpoint without a ZeRO cut", info.path);
    }
    RefuseContradictions();
    CompareParameters();
    const RunSettings carried = CarriedSettings(like_);
    ZeroRule rule{
        .stage = *info.stage,
        .num_ranks = info.num_ranks,
        .muon_order = MuonOrder::kAsGiven,
        .round_robin = carried.round_robin.value_or(false),
        .parameter_alignment = carried.parameter_alignment.value_or(false)};
    rule.sub_group_size =
        SubGroupSizeOf(target_, info.num_ranks,
                       carried.sub_group_size.value_or(rule.sub_group_size));
    Partitioning partitioning =
        Partitioning::FromGroups(target_.specs, rule, target_.groups);
    return {.layout = {.specs = std::move(target_.specs),
                       .rule = rule,
                       .partitioning = std::move(partitioning),
                       .precision = info.precision,
                       .offload = request_.settings.offload.value_or(
                           info.offload.empty() ? "none" : info.offload),
                       .optimizer_class = info.optimizer_class,
                       .config_stage = info.optimizer_class == kBf16Optimizer
                                           ? carried.stage
                                           : std::nullopt},
            .notes = {StrCat("cut and ordered as ", Printable(info.path))}};
  }

 private:
  Error Refuse(std::string message, std::string file) const {
    return Error(ErrorCode::kInvalidArgument, std::move(message),
                 {.file = std::move(file)});
  }

  void RefuseContradictions() const {
    const RunSettings& asked = request_.settings;
    const CheckpointInfo& info = like_.info();
    const auto check = [&](const char* what, const auto& wanted,
                           const auto& found) {
      if (wanted && *wanted != found) {
        throw Error(ErrorCode::kInvalidArgument,
                    StrCat("--like and another option contradict each other "
                           "in the ",
                           what, "; leave one of them out"),
                    {.file = info.path,
                     .expected = StrCat(*wanted),
                     .found = StrCat(found)});
      }
    };
    check("stage", asked.stage, info.stage.value_or(0));
    check("number of ranks", asked.num_ranks, info.num_ranks);
    check("precision", asked.precision, info.precision);
    RefuseOtherCut();
    if (request_.zero_init) {
      throw Refuse(
          "--like settles the order of the parameters; leave out --zero-init",
          info.path);
    }
  }

  // What a config says of the cut within the stage.
  void RefuseOtherCut() const {
    const RunSettings& asked = request_.settings;
    const RunSettings carried = CarriedSettings(like_);
    const CheckpointInfo& info = like_.info();
    const auto refuse_if = [&](bool is_other, const char* what) {
      if (is_other) {
        throw Refuse(StrCat("--like and --ds-config contradict each other in ",
                            what, "; leave one of them out"),
                     info.path);
      }
    };
    const auto differs = [](std::optional<bool> a, std::optional<bool> b) {
      return a && b && *a != *b;
    };
    if (info.stage == 3) {
      refuse_if(
          asked.sub_group_size &&
              !HasSubGroupSize(target_, info.num_ranks, *asked.sub_group_size),
          "sub_group_size");
    } else {
      refuse_if(differs(asked.round_robin, carried.round_robin),
                "round_robin_gradients");
      refuse_if(differs(asked.parameter_alignment, carried.parameter_alignment),
                "parameter_alignment");
    }
  }

  using ByName = std::map<std::string, const ParameterSpec*>;

  static ByName Index(const StoredLayout& layout) {
    ByName index;
    for (const ParameterSpec& spec : layout.specs) {
      if (spec.shape.num_elements() > 0) index.emplace(spec.name, &spec);
    }
    return index;
  }

  static void ListMissing(const ByName& of, const ByName& in,
                          std::vector<std::string>& names) {
    for (const auto& [name, spec] : of) {
      if (!in.contains(name)) names.push_back(Printable(name));
    }
  }

  static std::string Names(const std::vector<std::string>& names) {
    return names.empty() ? "none" : JoinNames(names, kMaxNames);
  }

  void CompareParameters() const {
    const ByName source = Index(stored_);
    const ByName like = Index(target_);
    std::vector<std::string> only_source;
    std::vector<std::string> only_like;
    ListMissing(source, like, only_source);
    ListMissing(like, source, only_like);
    if (!only_source.empty() || !only_like.empty()) {
      throw Refuse(
          StrCat("--like names a checkpoint of other trained parameters; only "
                 "in the source: ",
                 Names(only_source), "; only there: ", Names(only_like)),
          like_.info().path);
    }
    for (const auto& [name, spec] : source) CompareOne(*spec, *like.at(name));
  }

  void CompareOne(const ParameterSpec& source,
                  const ParameterSpec& like) const {
    const auto refuse = [&](const char* message, std::string in_source,
                            std::string there) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("--like: ", message, " differs"),
                  {.file = like_.info().path,
                   .tensor = source.name,
                   .expected = std::move(in_source),
                   .found = std::move(there)});
    };
    if (source.shape != like.shape) {
      refuse("the shape", source.shape.ToString(), like.shape.ToString());
    }
    if (source.optimizer != like.optimizer) {
      refuse("the optimizer", std::string(OptimizerName(source.optimizer)),
             std::string(OptimizerName(like.optimizer)));
    }
    if (source.group != like.group) {
      refuse("the param group", GroupName(source_, source.group),
             GroupName(like_, like.group));
    }
  }

  static std::string GroupName(const Checkpoint& checkpoint, int32_t group) {
    const auto& groups = checkpoint.info().groups;
    const auto index = static_cast<size_t>(group);
    return index < groups.size()
               ? StrCat(group, " (", Printable(groups[index].name), ")")
               : StrCat(group);
  }

  const Checkpoint& source_;
  const Checkpoint& like_;
  const LayoutRequest& request_;
  StoredLayout stored_;
  StoredLayout target_;
};

}  // namespace

LayoutChoice LayoutLike(const Checkpoint& source,
                        const LayoutRequest& request) {
  return LikeChooser(source, request).Run();
}

}  // namespace muonstore
