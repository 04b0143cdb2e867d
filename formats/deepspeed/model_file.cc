#include "formats/deepspeed/model_file.h"

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/deepspeed/config_patch.h"
#include "formats/deepspeed/optim_values.h"
#include "formats/deepspeed/values.h"

namespace muonstore::deepspeed {
namespace {

using torchfile::Draft;
using torchfile::NodeId;
using Kind = ModuleEntry::Kind;

class ModelFileBuilder {
 public:
  ModelFileBuilder(const Target& target, const TargetSegments& segments,
                   int32_t rank, FileDraft& file)
      : target_(target),
        segments_(segments),
        rank_(rank),
        file_(file),
        draft_(file.draft()) {
    for (size_t g = 0; g < target.partitioning().groups().size(); ++g) {
      const FlatGroup& group = target.partitioning().groups()[g];
      for (size_t i = 0; i < group.parameters.size(); ++i) {
        offsets_.emplace(group.parameters[i], group.offsets[i]);
      }
    }
  }

  // In DeepSpeed's order of keys, where the source has no order of its own.
  void Run() {
    std::vector<Replacement> entries;
    entries.emplace_back("module", Module());
    AddDefault("buffer_names", BufferNames(), entries);
    AddDefault("optimizer", draft_.None(), entries);
    entries.emplace_back("param_shapes", ParamShapes());
    entries.emplace_back("frozen_param_shapes", FrozenShapes());
    entries.emplace_back("shared_params", SharedParams());
    entries.emplace_back("frozen_param_fragments", FrozenFragments());
    for (const char* key : {"lr_scheduler", "data_sampler", "random_ltd"}) {
      AddDefault(key, draft_.None(), entries);
    }
    for (const char* key :
         {"skipped_steps", "global_steps", "global_samples"}) {
      AddDefault(key, Counter(key), entries);
    }
    entries.emplace_back("dp_world_size", draft_.Int(target_.num_ranks()));
    AddDefault("mp_world_size", draft_.Int(1), entries);
    if (!file_.carried()) {
      AddDefault("checkpoint_parallel_dimensions", Dimensions(), entries);
    }
    entries.emplace_back("ds_config", PatchedConfig(target_, file_));
    AddDefault("ds_version", draft_.Str(kWrittenVersion), entries);
    draft_.set_root(file_.Rewrite(file_.carried(), entries));
  }

 private:
  void AddDefault(std::string_view key, NodeId value,
                  std::vector<Replacement>& entries) {
    if (!Lookup(file_.carried(), {key})) {
      entries.emplace_back(key, value);
    }
  }

  NodeId Counter(std::string_view key) {
    for (const auto& [name, value] : target_.source().info().counters) {
      if (name == key) {
        return ToNode(draft_, value);
      }
    }
    return draft_.Int(0);
  }

  NodeId Dimensions() {
    const NodeId dict = draft_.Dict();
    draft_.SetItem(dict, "pp_degree", draft_.Int(1));
    draft_.SetItem(dict, "tp_degree", draft_.Int(1));
    return dict;
  }

  NodeId Module() {
    const NodeId module = draft_.OrderedDict();
    const auto carried = Lookup(file_.carried(), {"module"});
    for (const ModuleEntry& entry : target_.module()) {
      if (entry.kind != Kind::kOther) {
        draft_.SetItem(module, entry.name, ModuleTensor(entry));
      } else if (const auto value = Lookup(carried, {entry.name})) {
        draft_.SetItem(module, entry.name, file_.Copy(*value));
      }
    }
    if (carried && carried->state()) {
      draft_.SetState(module, file_.Copy(*carried->state()));
    }
    return module;
  }

  NodeId ModuleTensor(const ModuleEntry& entry) {
    switch (entry.kind) {
      case Kind::kTrained:
      case Kind::kTied:
        return target_.stage() == 3
                   ? Placeholder(target_.spec(entry.parameter).weight_dtype)
                   : Weight(entry);
      case Kind::kFrozen:
        if (target_.stage() == 3) {
          return Placeholder(target_.index().tensor(entry.tensor).dtype);
        }
        [[fallthrough]];
      default:
        return WholeTensor(entry.tensor);
    }
  }

  // What stage 3 has in the place of a parameter.
  NodeId Placeholder(DType dtype) {
    return file_.View({.dtype = dtype, .shape = Shape({0})});
  }

  // A view of the flat buffer of all ranks.
  NodeId Weight(const ModuleEntry& entry) {
    const int32_t group = target_.partitioning().flat_group_of(entry.parameter);
    return file_.View({.key = WeightsKey(static_cast<size_t>(group)),
                       .dtype = target_.spec(entry.parameter).weight_dtype,
                       .shape = target_.spec(entry.parameter).shape,
                       .offset = offsets_.at(entry.parameter)});
  }

  NodeId WholeTensor(size_t tensor) {
    const CheckpointTensor& info = target_.index().tensor(tensor);
    return file_.View({.key = TensorKeyOf(info.key.parameter),
                       .dtype = info.dtype,
                       .shape = info.shape});
  }

  NodeId BufferNames() {
    const NodeId names = draft_.List();
    for (const ModuleEntry& entry : target_.module()) {
      if (entry.kind == Kind::kBuffer) {
        draft_.Append(names, draft_.Str(entry.name));
      }
    }
    return names;
  }

  NodeId ParamShapes() {
    const NodeId list = draft_.List();
    for (const FlatGroup& group : target_.partitioning().groups()) {
      const NodeId shapes = draft_.OrderedDict();
      for (const int32_t parameter : group.parameters) {
        const ParameterSpec& spec = target_.spec(parameter);
        draft_.SetItem(shapes, spec.name, draft_.Size(spec.shape));
      }
      draft_.Append(list, shapes);
    }
    return list;
  }

  // DeepSpeed says nothing of frozen parameters in stage 1, nor where the run
  // leaves them out of its checkpoints.
  bool HasFrozen() const {
    const auto shapes = Lookup(file_.carried(), {"frozen_param_shapes"});
    // A source that was cut again may carry what a stage-1 run said.
    const bool left_out = shapes && shapes->is_none() &&
                          target_.frozen().empty() &&
                          target_.source().info().stage.value_or(1) > 1;
    return target_.stage() > 1 && !left_out;
  }

  NodeId FrozenShapes() {
    if (!HasFrozen()) {
      return draft_.None();
    }
    const NodeId shapes = draft_.OrderedDict();
    for (const ModuleEntry& entry : target_.frozen()) {
      draft_.SetItem(shapes, entry.name,
                     draft_.Size(target_.index().tensor(entry.tensor).shape));
    }
    return shapes;
  }

  NodeId FrozenFragments() {
    if (!HasFrozen()) {
      return draft_.None();
    }
    const NodeId fragments = draft_.OrderedDict();
    for (const ModuleEntry& entry : target_.frozen()) {
      const NodeId tensor =
          target_.stage() == 3
              ? file_.View(
                    {.key = FragmentKey(entry.name),
                     .dtype = target_.index().tensor(entry.tensor).dtype,
                     .shape = Shape({segments_.PieceElements(entry.tensor)})})
              : WholeTensor(entry.tensor);
      draft_.SetItem(fragments, entry.name, tensor);
    }
    return fragments;
  }

  // Only rank 0 tells.
  NodeId SharedParams() {
    const NodeId dict = draft_.Dict();
    const auto& aliases = target_.source().info().aliases;
    if (rank_ != 0) {
      return dict;
    }
    for (const ModuleEntry& entry : target_.module()) {
      const auto alias = aliases.find(entry.name);
      if (alias != aliases.end()) {
        draft_.SetItem(dict, entry.name, draft_.Str(alias->second));
      }
    }
    return dict;
  }

  const Target& target_;
  const TargetSegments& segments_;
  int32_t rank_;
  FileDraft& file_;
  Draft& draft_;
  std::unordered_map<int32_t, int64_t> offsets_;
};

}  // namespace

void BuildModelFile(const Target& target, const TargetSegments& segments,
                    int32_t rank, FileDraft& file) {
  ModelFileBuilder(target, segments, rank, file).Run();
}

}  // namespace muonstore::deepspeed
