#include "formats/deepspeed/carried_state.h"

#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "formats/deepspeed/values.h"

namespace muonstore::deepspeed {
namespace {

using torchfile::NodeId;
using torchfile::TorchFile;
using torchfile::TreeRef;
using torchfile::Value;
using torchfile::ValueType;

using Nodes = std::unordered_set<NodeId>;

void AddTensor(Value value, Nodes& nodes) {
  if (value.is(ValueType::kTensor)) {
    nodes.insert(value.id());
  }
}

void AddTensorsOfDict(const std::optional<Value>& dict, Nodes& nodes) {
  for (size_t i = 0; dict && dict->is(ValueType::kDict) && i < dict->size();
       ++i) {
    AddTensor(dict->entry(i).second, nodes);
  }
}

void AddTensorsOfList(const std::optional<Value>& list, Nodes& nodes) {
  for (size_t i = 0; list && list->is(ValueType::kList) && i < list->size();
       ++i) {
    AddTensor(list->at(i), nodes);
  }
}

// The buffers of one flat group's state; scalars such as `step` are carried.
void AddBuffers(Value state, Nodes& nodes) {
  for (size_t i = 0; state.is(ValueType::kDict) && i < state.size(); ++i) {
    const Value value = state.entry(i).second;
    if (!IsScalarState(value)) {
      AddTensor(value, nodes);
    }
  }
}

Nodes StateOfModelFile(Value root) {
  Nodes nodes;
  AddTensorsOfDict(root.Find("module"), nodes);
  AddTensorsOfDict(root.Find("frozen_param_fragments"), nodes);
  return nodes;
}

Nodes StateOfOptimFile(Value root) {
  Nodes nodes;
  const Value optimizer = root.Get("optimizer_state_dict");
  AddTensorsOfList(optimizer.Find("fp32_flat_groups"), nodes);
  AddTensorsOfList(optimizer.Find("single_partition_of_fp32_groups"), nodes);
  const auto base = optimizer.Find("base_optimizer_state");
  for (size_t i = 0; base && base->is(ValueType::kList) && i < base->size();
       ++i) {
    AddBuffers(base->at(i), nodes);
  }
  auto states = Lookup(base, {"state"});
  if (!states) {
    states = Lookup(optimizer, {"optimizer_state_dict", "state"});
  }
  for (size_t i = 0; states && i < states->size(); ++i) {
    AddBuffers(states->entry(i).second, nodes);
  }
  return nodes;
}

TreeRef RefTo(std::shared_ptr<const TorchFile> file, Nodes nodes) {
  const NodeId root = file->tree().root;
  return {.file = std::move(file),
          .node = root,
          .is_state = [nodes = std::make_shared<const Nodes>(std::move(nodes))](
                          NodeId node) { return nodes->contains(node); }};
}

}  // namespace

int32_t RankFiles::num_ranks() const { return parts_->directory.num_ranks(); }

std::shared_ptr<const TorchFile> RankFiles::ModelFile(int32_t rank) const {
  const std::vector<std::string>& files = parts_->directory.model_files;
  if (rank == 0) {
    return parts_->model->file;
  }
  const auto index = static_cast<size_t>(rank);
  return index < files.size() ? TorchFile::Open(parts_->fs, files[index])
                              : nullptr;
}

torchfile::CarriedRank RankFiles::rank(int32_t rank) const {
  torchfile::CarriedRank carried;
  if (auto model = ModelFile(rank)) {
    Nodes nodes = StateOfModelFile(model->root());
    carried.model_states = RefTo(std::move(model), std::move(nodes));
  }
  const auto index = static_cast<size_t>(rank);
  if (index < parts_->ranks.size()) {
    const auto& file = parts_->ranks[index].file;
    carried.optim_states = RefTo(file, StateOfOptimFile(file->root()));
  }
  return carried;
}

}  // namespace muonstore::deepspeed
