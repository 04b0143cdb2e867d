#include "formats/deepspeed/model_states.h"

#include <iterator>
#include <unordered_set>
#include <utility>

#include "formats/deepspeed/carried_values.h"
#include "src/base/str.h"

namespace muonstore::deepspeed {

using torchfile::Value;
using torchfile::ValueType;

namespace {

void RefuseUnsupported(Value root, const RunConfig& config) {
  const auto refuse = [](std::string_view feature) {
    throw Error(ErrorCode::kUnsupported,
                StrCat("checkpoints with ", feature, " are not supported"));
  };
  if (LookupInt(root, {"mp_world_size"}).value_or(1) > 1 ||
      LookupInt(root, {"checkpoint_parallel_dimensions", "tp_degree"})
              .value_or(1) > 1) {
    refuse("tensor parallelism");
  }
  if (LookupInt(root, {"checkpoint_parallel_dimensions", "pp_degree"})
          .value_or(1) > 1) {
    refuse("pipeline parallelism");
  }
  if (HasContent(root.Find("ds_autoep_layers")) ||
      HasContent(root.Find("num_experts"))) {
    refuse("experts");
  }
  if (config.hierarchical_partition) {
    refuse("hierarchical partitioning (hpZ or MiCS)");
  }
}

std::vector<NamedTensor> ToNamedTensors(Value dict) {
  std::vector<NamedTensor> tensors;
  tensors.reserve(dict.size());
  for (size_t i = 0; i < dict.size(); ++i) {
    const auto [name, value] = dict.entry(i);
    // A module may keep extra state that is no tensor.
    if (value.is(ValueType::kTensor)) {
      tensors.push_back({std::string(name.AsString()),
                         static_cast<uint32_t>(value.node().value)});
    }
  }
  return tensors;
}

void ReadShapes(Value root, ModelStates& states) {
  const Value groups = root.Get("param_shapes");
  if (!groups.is(ValueType::kList)) {
    throw Error(ErrorCode::kDataLoss, "param_shapes is no list",
                {.expected = "a list with a dict per flat group",
                 .found = groups.Describe(60)});
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    states.param_shapes.push_back(ToNamedShapes(groups.at(i)));
  }
  if (const auto frozen = root.Find("frozen_param_shapes");
      HasContent(frozen)) {
    states.frozen_shapes = ToNamedShapes(*frozen);
  }
  if (const auto fragments = root.Find("frozen_param_fragments");
      HasContent(fragments)) {
    states.frozen_fragments = ToNamedTensors(*fragments);
  }
}

void ReadNames(Value root, ModelStates& states) {
  if (const auto names = root.Find("buffer_names"); HasContent(names)) {
    for (size_t i = 0; i < names->size(); ++i) {
      states.buffer_names.emplace_back(names->at(i).AsString());
    }
  }
  const auto tied = root.Find("shared_params");
  if (HasContent(tied) && tied->is(ValueType::kDict)) {
    for (size_t i = 0; i < tied->size(); ++i) {
      const auto [dropped, kept] = tied->entry(i);
      states.tied.emplace(dropped.AsString(), kept.AsString());
    }
  }
}

// A dropped name has no state of its own, and the kept one has. DeepSpeed takes
// parameters without elements for tied, since none of them has an address.
void SortOutTies(ModelStates& states) {
  if (states.tied.empty()) {
    return;
  }
  std::unordered_set<std::string_view> with_state;
  const auto add = [&](const NamedShape& shape) {
    with_state.insert(shape.name);
    if (shape.shape.num_elements() == 0) states.tied.erase(shape.name);
  };
  for (const auto& group : states.param_shapes) {
    std::for_each(group.begin(), group.end(), add);
  }
  std::for_each(states.frozen_shapes.begin(), states.frozen_shapes.end(), add);
  std::unordered_set<std::string_view> known = with_state;
  for (const NamedTensor& named : states.module) {
    known.insert(named.name);
  }
  for (auto it = states.tied.begin(); it != states.tied.end();) {
    const bool broken =
        with_state.contains(it->first) || !known.contains(it->second);
    auto next = std::next(it);
    if (broken) {
      states.broken_ties.insert(states.tied.extract(it));
    }
    it = next;
  }
}

std::optional<int64_t> LookupCount(Value root, std::string_view name) {
  const auto value = LookupInt(root, {name});
  return value && *value >= 0 ? value : std::nullopt;
}

void ReadCounters(Value root, ModelStates& states) {
  states.dp_world_size = LookupInt(root, {"dp_world_size"}).value_or(0);
  states.global_steps = LookupCount(root, "global_steps");
  states.skipped_steps = LookupCount(root, "skipped_steps");
  for (const char* name : {"global_steps", "skipped_steps", "global_samples"}) {
    if (const auto value = LookupInt(root, {name})) {
      states.counters.emplace_back(name, *value);
    }
  }
}

ModelStates Parse(std::shared_ptr<const torchfile::TorchFile> file) {
  const Value root = file->RequireDict();
  if (!root.Find("module")) {
    throw Error(ErrorCode::kDataLoss, "this is no model_states file",
                {.expected = "a dict with the key 'module'",
                 .found = root.Describe(80)});
  }
  ModelStates states;
  states.file = std::move(file);
  states.version = LookupString(root, {"ds_version"}).value_or("unknown");
  // Source builds leave a space at the end.
  states.version.erase(states.version.find_last_not_of(' ') + 1);
  states.config = ParseRunConfig(root.Find("ds_config"));
  RefuseUnsupported(root, states.config);
  states.module = ToNamedTensors(root.Get("module"));
  ReadShapes(root, states);
  ReadNames(root, states);
  SortOutTies(states);
  ReadCounters(root, states);
  states.carried = CarriedValues(root);
  return states;
}

}  // namespace

ModelStates ReadModelStates(std::shared_ptr<FileSystem> fs,
                            const std::string& path) {
  try {
    return Parse(torchfile::TorchFile::Open(std::move(fs), path));
  } catch (const Error& error) {
    throw error.WithFile(path);
  }
}

}  // namespace muonstore::deepspeed
