#include "formats/deepspeed/sink_losses.h"

#include <map>
#include <unordered_set>

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
  return list;
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
