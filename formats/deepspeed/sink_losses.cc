#include "formats/deepspeed/sink_losses.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <unordered_set>

#include "formats/deepspeed/values.h"
#include "src/base/str.h"

namespace muonstore::deepspeed {
namespace {

using Kind = ModuleEntry::Kind;

std::string LossKindOf(const CheckpointTensor& tensor) {
  if (tensor.key.kind == kMomentum) {
    return "momentum";
  }
  const bool is_model =
      tensor.key.kind == kWeight || tensor.key.kind == kBuffer;
  return is_model ? "model" : "optimizer-state";
}

// Only stage 3 keeps client state for each rank.
void AddClientStateNote(const Target& target, std::vector<std::string>& notes) {
  const CheckpointInfo& info = target.source().info();
  const int32_t from = info.stage.value_or(0) == 3 ? info.num_ranks : 1;
  const int32_t to = target.stage() == 3 ? target.num_ranks() : 1;
  if (to > from) {
    notes.push_back(
        StrCat("client state of ranks ", from, " and up is that of rank 0"));
  } else if (to < from) {
    notes.push_back(StrCat("client state of ranks ", to,
                           " and up of the source is left out"));
  }
}

}  // namespace

// Keys of optimizer_state_dict that some class of DeepSpeed writes.
constexpr std::string_view kKnownKeys[] = {"base_optimizer_state",
                                           "clip_grad",
                                           "ds_version",
                                           "dynamic_loss_scale",
                                           "fp32_flat_groups",
                                           "group_paddings",
                                           "loss_scaler",
                                           "optimizer_state_dict",
                                           "overflow",
                                           "param_alignment_paddings",
                                           "param_slice_mappings",
                                           "partition_count",
                                           "single_partition_of_fp32_groups",
                                           "universal_checkpoint_info",
                                           "zero_stage"};

bool IsKnown(std::string_view key) {
  return std::find(std::begin(kKnownKeys), std::end(kKnownKeys), key) !=
         std::end(kKnownKeys);
}

// Whose values are looked at. At stage 3 those of a rank are as large as the
// module: rank 0 speaks for all.
int32_t NumRanksToAsk(const Checkpoint& source) {
  const torchfile::CarriedState* carried = source.carried_state();
  const int32_t count = carried == nullptr ? 0 : carried->num_ranks();
  return source.info().stage == 3 ? std::min(count, 1) : count;
}

// What stands beside the state in optim_states and is not understood: the
// target's structure has no place for it.
void AddUnknownKeys(const Target& target, std::vector<SinkLoss>& losses) {
  std::set<std::string> keys;
  for (int32_t rank = 0; rank < NumRanksToAsk(target.source()); ++rank) {
    const torchfile::CarriedRank files =
        target.source().carried_state()->rank(rank);
    const auto dict = files.optim_states ? Lookup(files.optim_states->value(),
                                                  {"optimizer_state_dict"})
                                         : std::nullopt;
    for (size_t i = 0;
         dict && dict->is(torchfile::ValueType::kDict) && i < dict->size();
         ++i) {
      const torchfile::Value key = dict->entry(i).first;
      if (!key.is(torchfile::ValueType::kString) || !IsKnown(key.AsString())) {
        keys.insert(key.Describe(60));
      }
    }
  }
  const std::vector<std::string> names(keys.begin(), keys.end());
  if (!names.empty()) {
    losses.push_back(
        {.kind = "carried",
         .message = StrCat("values in optimizer_state_dict that are not "
                           "DeepSpeed's: ",
                           JoinNames(names, 8))});
  }
}

// State goes where its parameter goes; a model tensor must be in the module.
std::vector<SinkLoss> FindLosses(const Target& target) {
  std::unordered_set<std::string> trained;
  for (const ParameterSpec& spec : target.layout().specs) {
    trained.insert(spec.name);
  }
  std::unordered_set<size_t> kept;
  for (const ModuleEntry& entry : target.module()) {
    if (entry.kind == Kind::kFrozen || entry.kind == Kind::kBuffer) {
      kept.insert(entry.tensor);
    }
  }
  std::map<std::string, SinkLoss> losses;
  const auto tensors = target.source().tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (trained.contains(tensors[i].key.parameter) || kept.contains(i)) {
      continue;
    }
    const std::string kind = LossKindOf(tensors[i]);
    SinkLoss& loss = losses[kind];
    loss.kind = kind;
    loss.tensors.push_back(i);
  }
  std::vector<SinkLoss> list;
  for (auto& [kind, loss] : losses) {
    loss.message = StrCat(
        loss.tensors.size(), " tensors have no place in the target, the first ",
        Printable(tensors[loss.tensors.front()].key.ToString()));
    list.push_back(std::move(loss));
  }
  AddUnknownKeys(target, list);
  return list;
}

void AddLayoutNote(const CheckpointInfo& info,
                   std::vector<std::string>& notes) {
  std::vector<std::string> names;
  for (const auto& [name, layout] : info.matrix_layouts) {
    if (layout != "whole") names.push_back(StrCat(name, " (", layout, ")"));
  }
  if (names.empty()) return;
  notes.push_back(StrCat(
      "DeepSpeed orthogonalizes whole matrices and its files do not tell that "
      "these were seen otherwise: ",
      JoinNames(names, 8)));
}

std::vector<std::string> FindNotes(const Target& target) {
  std::vector<std::string> notes;
  const CheckpointInfo& info = target.source().info();
  const bool has_carried = target.source().carried_state() != nullptr;
  if (!has_carried) {
    notes.emplace_back(
        "the source carries no client state: DeepSpeed's defaults are written");
  } else {
    AddClientStateNote(target, notes);
  }
  for (const std::string& group : target.GroupsWithoutMomentum()) {
    notes.push_back(StrCat("DeepSpeed will resume with zero momentum of ",
                           group, ": the source has none"));
  }
  if (info.momentum &&
      info.momentum->convention == MomentumConvention::kAccumulate) {
    notes.emplace_back(
        "the momentum accumulates in the source (M = mu M + G) and was "
        "multiplied by 1 - mu of its param group, as DeepSpeed has it");
  }
  AddLayoutNote(info, notes);
  const auto& specs = target.layout().specs;
  const auto num_empty = std::count_if(
      specs.begin(), specs.end(),
      [](const ParameterSpec& spec) { return spec.shape.num_elements() == 0; });
  if (num_empty > 0) {
    notes.push_back(StrCat(num_empty,
                           " parameters without elements are written without "
                           "optimizer state, which has no elements either"));
  }
  for (const ParamGroup& group : info.groups) {
    if (has_carried && group.hyper_parameters.empty()) {
      notes.push_back(StrCat("hyper-parameters of ", group.name,
                             " are those of the config: the source (an elastic "
                             "checkpoint) does not keep them"));
    }
  }
  return notes;
}

}  // namespace muonstore::deepspeed
