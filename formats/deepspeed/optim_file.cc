#include "formats/deepspeed/optim_file.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/deepspeed/carried_optimizer.h"
#include "formats/deepspeed/config_patch.h"
#include "formats/deepspeed/gaps.h"
#include "formats/deepspeed/optim_values.h"
#include "formats/deepspeed/values.h"
#include "formats/torchfile/tree_copier.h"
#include "src/base/str.h"

namespace muonstore::deepspeed {
namespace {

using torchfile::Draft;
using torchfile::NodeId;
using torchfile::Value;

constexpr double kDefaultClipping = 1;

class OptimFileBuilder {
 public:
  OptimFileBuilder(const Target& target, const TargetSegments& segments,
                   int32_t rank, FileDraft& file)
      : target_(target),
        segments_(segments),
        rank_(rank),
        file_(file),
        draft_(file.draft()),
        carried_(file.carried()),
        first_(target.Carried(0).optim_states),
        first_optimizer_(first_ ? std::optional(first_->value())
                                : std::nullopt) {
    if (first_) {
      first_copier_.emplace(draft_, first_->file);
    }
  }

  void Run() {
    const NodeId optimizer = draft_.Dict();
    switch (target_.writer()) {
      case Writer::kZero12:
        SetZero12(optimizer);
        break;
      case Writer::kBf16:
        SetBf16(optimizer);
        break;
      case Writer::kZero3:
        SetZero3(optimizer);
        break;
    }
    const NodeId config = PatchedConfig(target_, file_);
    std::vector<Replacement> entries = {{"optimizer_state_dict", optimizer},
                                        {"ds_config", config},
                                        {"ds_version", Version()}};
    entries.emplace_back(kOwnKey, WithoutMomentum());
    draft_.set_root(file_.Rewrite(file_.carried(), entries));
  }

 private:
  // What a reader of the target would take for a fault of it.
  std::optional<NodeId> WithoutMomentum() {
    const auto version = LookupString(file_.carried(), {"ds_version"});
    const std::vector<std::string> names = target_.GroupsWithoutMomentum();
    if (names.empty() ||
        NeverStoresMomentum(target_.layout().offload, version.value_or(""))) {
      return std::nullopt;
    }
    const NodeId list = draft_.List();
    for (const std::string& name : names) {
      draft_.Append(list, draft_.Str(name));
    }
    const NodeId own = draft_.Dict();
    Set(own, kWithoutMomentum, list);
    return own;
  }

  // In DeepSpeed's order of keys.
  void SetZero12(NodeId dict) {
    SetScaler(dict);
    Set(dict, "clip_grad", ClipGrad());
    SetBaseState(dict);
    Set(dict, "zero_stage", ZeroStage(draft_, target_.stage()));
    Set(dict, "group_paddings", GroupPaddings());
    Set(dict, "param_alignment_paddings", AlignmentPaddings());
    SetLayoutTail(dict);
  }

  void SetBf16(NodeId dict) {
    Set(dict, "clip_grad", ClipGrad());
    SetBaseState(dict);
    Set(dict, "group_paddings", GroupPaddings());
    SetLayoutTail(dict);
  }

  void SetZero3(NodeId dict) {
    Set(dict, "zero_stage", ZeroStage(draft_, target_.stage()));
    SetScaler(dict);
    Set(dict, "partition_count", draft_.Int(target_.num_ranks()));
    Set(dict, "optimizer_state_dict", OptimizerState());
    Set(dict, "fp32_flat_groups", SubGroupMasters());
  }

  void Set(NodeId dict, std::string_view key, NodeId value) {
    draft_.SetItem(dict, key, value);
  }

  void SetScaler(NodeId dict) {
    const bool is_fp16 = target_.layout().precision == "fp16";
    Set(dict, "loss_scaler", LossScaler(target_, carried_, file_));
    Set(dict, "dynamic_loss_scale",
        file_.CopyOr(carried_.Find("dynamic_loss_scale"),
                     draft_.Bool(is_fp16)));
    Set(dict, "overflow",
        file_.CopyOr(carried_.Find("overflow"), draft_.Bool(false)));
  }

  void SetBaseState(NodeId dict) {
    Set(dict, "base_optimizer_state", OptimizerState());
    Set(dict, "single_partition_of_fp32_groups", PartitionMasters());
  }

  void SetLayoutTail(NodeId dict) {
    Set(dict, "partition_count", PartitionCount());
    Set(dict, "ds_version", Version());
    Set(dict, "param_slice_mappings", SliceMappings());
    if (const auto universal = carried_.Find("universal_checkpoint_info")) {
      Set(dict, "universal_checkpoint_info", file_.Copy(*universal));
    }
  }

  NodeId Version() {
    return file_.CopyOr(Lookup(file_.carried(), {"ds_version"}),
                        draft_.Str(kWrittenVersion));
  }

  // Stage 3 keeps it in the config alone.
  NodeId ClipGrad() {
    auto clip = carried_.Find("clip_grad");
    if (!clip) {
      clip = Lookup(file_.carried(), {"ds_config", "gradient_clipping"});
    }
    return file_.CopyOr(clip, draft_.Float(kDefaultClipping));
  }

  size_t num_flat_groups() const {
    return target_.partitioning().groups().size();
  }
  const FlatGroup& flat_group(size_t index) const {
    return target_.partitioning().groups()[index];
  }

  NodeId OptimizerState() {
    const NodeId state = draft_.Dict();
    for (size_t g = 0; g < num_flat_groups(); ++g) {
      draft_.SetItem(state, draft_.Int(static_cast<int64_t>(g)), StateOf(g));
    }
    const NodeId dict = draft_.Dict();
    Set(dict, "state", state);
    Set(dict, "param_groups", ParamGroups());
    return dict;
  }

  // Counters stand before or behind the buffers, as in the source.
  NodeId StateOf(size_t flat) {
    const NodeId state = draft_.Dict();
    const auto group = static_cast<size_t>(flat_group(flat).group);
    SetCounters(group, true, state);
    for (const StateKind& kind : segments_.kinds(flat)) {
      SetBuffer(kind, StateKey(kind, flat), state);
    }
    SetCounters(group, false, state);
    return state;
  }

  // They are the same on all ranks, but a rank that owned padding alone may
  // have had none: rank 0 always has them.
  void SetCounters(size_t group, bool before_buffers, NodeId state) {
    const auto step = target_.source().info().groups[group].step;
    if (const auto own = carried_.StateOfGroup(group)) {
      CopyCounters(*own, file_.copier(), before_buffers, state);
    } else if (const auto first = first_optimizer_.StateOfGroup(group)) {
      CopyCounters(*first, *first_copier_, before_buffers, state);
    } else if (step && before_buffers) {
      Set(state, "step", draft_.Int(*step));
    }
  }

  void CopyCounters(const Value& carried, torchfile::TreeCopier& copier,
                    bool before_buffers, NodeId state) {
    bool is_before = true;
    for (size_t i = 0; i < carried.size(); ++i) {
      const auto [key, value] = carried.entry(i);
      if (!IsScalarState(value) || value.is_none()) {
        is_before = false;
      } else if (is_before == before_buffers) {
        draft_.SetItem(state, copier.Copy(key), copier.Copy(value));
      }
    }
  }

  // A rank that owns no matrix keeps no momentum.
  void SetBuffer(const StateKind& kind, const std::string& key, NodeId state) {
    if (const SinkSegment* const segment = file_.segment(key)) {
      const std::string_view name = kind;
      Set(state, kind == kMomentum ? "momentum_buffer" : name,
          file_.View({.key = key,
                      .dtype = segment->dtype,
                      .shape = Shape({segment->num_elements})}));
    }
  }

  NodeId ParamGroups() {
    const NodeId list = draft_.List();
    for (size_t p = 0; p < target_.source().info().groups.size(); ++p) {
      const NodeId params = draft_.List();
      for (size_t g = 0; g < num_flat_groups(); ++g) {
        if (flat_group(g).group == static_cast<int32_t>(p)) {
          draft_.Append(params, draft_.Int(static_cast<int64_t>(g)));
        }
      }
      draft_.Append(list,
                    ParamGroupValues(target_, carried_, p, params, file_));
    }
    return list;
  }

  // DeepSpeed leaves the padding out of the view, not out of the storage;
  // BF16_Optimizer leaves it in.
  NodeId PartitionMasters() {
    const NodeId list = draft_.List();
    for (size_t g = 0; g < num_flat_groups(); ++g) {
      const int64_t padding = target_.writer() == Writer::kBf16
                                  ? 0
                                  : target_.partitioning().tail_padding(
                                        rank_, static_cast<int32_t>(g));
      draft_.Append(
          list, file_.View({.key = StateKey(kMaster, g),
                            .shape = Shape(
                                {flat_group(g).partition_elements - padding}),
                            .requires_grad = true}));
    }
    return list;
  }

  NodeId SubGroupMasters() {
    const NodeId list = draft_.List();
    for (size_t g = 0; g < num_flat_groups(); ++g) {
      const auto& parameters = flat_group(g).parameters;
      const NodeId attributes = draft_.Dict();
      Set(attributes, "ds_id",
          draft_.Str(StrCat(target_.parameter_number(parameters.front()), "_",
                            target_.parameter_number(parameters.back()))));
      draft_.Append(
          list, file_.View({.key = StateKey(kMaster, g),
                            .shape = Shape({flat_group(g).partition_elements}),
                            .requires_grad = true,
                            .attributes = attributes}));
    }
    return list;
  }

  // BF16_Optimizer gives the last rank the padding of all ranks.
  int64_t GroupPadding(size_t g) const {
    const Partitioning& partitioning = target_.partitioning();
    if (target_.writer() != Writer::kBf16) {
      return partitioning.tail_padding(rank_, static_cast<int32_t>(g));
    }
    const int64_t flat_elements =
        flat_group(g).partition_elements * partitioning.num_ranks();
    return rank_ == partitioning.num_ranks() - 1
               ? flat_elements - flat_group(g).num_elements
               : 0;
  }

  NodeId GroupPaddings() {
    const NodeId list = draft_.List();
    for (size_t g = 0; g < num_flat_groups(); ++g) {
      draft_.Append(list, draft_.Int(GroupPadding(g)));
    }
    return list;
  }

  NodeId AlignmentPaddings() {
    const NodeId list = draft_.List();
    for (size_t g = 0; g < num_flat_groups(); ++g) {
      const FlatGroup& group = flat_group(g);
      const NodeId pads = draft_.List();
      for (size_t k = 0; k < group.parameters.size(); ++k) {
        draft_.Append(
            pads,
            draft_.Int(k < group.pad_after.size() ? group.pad_after[k] : 0));
      }
      draft_.Append(list, pads);
    }
    return list;
  }

  NodeId PartitionCount() {
    return draft_.List(std::vector<NodeId>(num_flat_groups(),
                                           draft_.Int(target_.num_ranks())));
  }

  NodeId SliceMappings() {
    const NodeId list = draft_.List();
    for (size_t g = 0; g < num_flat_groups(); ++g) {
      draft_.Append(list, SliceMapping(target_, rank_, g, file_));
    }
    return list;
  }

  const Target& target_;
  const TargetSegments& segments_;
  int32_t rank_;
  FileDraft& file_;
  Draft& draft_;
  CarriedOptimizer carried_;
  // Of the source's rank 0.
  std::optional<torchfile::TreeRef> first_;
  CarriedOptimizer first_optimizer_;
  std::optional<torchfile::TreeCopier> first_copier_;
};

}  // namespace

void BuildOptimFile(const Target& target, const TargetSegments& segments,
                    int32_t rank, FileDraft& file) {
  OptimFileBuilder(target, segments, rank, file).Run();
}

}  // namespace muonstore::deepspeed
