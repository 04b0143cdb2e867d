#include "formats/native/plan_manifest.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "formats/native/manifest_names.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

// How the Muon groups stand in the target against both orders that DeepSpeed
// uses: the words of CheckpointInfo::order.
std::string OrderOf(const TargetLayout& target,
                    const std::vector<std::string>& module_order) {
  std::unordered_map<std::string, size_t> place;
  for (const std::string& name : module_order) {
    place.emplace(name, place.size());
  }
  const auto spec = [&](int32_t i) -> const ParameterSpec& {
    return target.specs[static_cast<size_t>(i)];
  };
  const auto by_module = [&](int32_t a, int32_t b) {
    const auto first = place.find(spec(a).name);
    const auto second = place.find(spec(b).name);
    const size_t i = first == place.end() ? place.size() : first->second;
    const size_t j = second == place.end() ? place.size() : second->second;
    return std::pair(i, a) < std::pair(j, b);
  };
  std::map<int32_t, std::vector<int32_t>> groups;  // In flat order.
  for (const FlatGroup& flat : target.partitioning.groups()) {
    auto& members = groups[flat.group];
    members.insert(members.end(), flat.parameters.begin(),
                   flat.parameters.end());
  }
  bool sorted = true;
  bool module = true;
  for (const auto& [group, members] : groups) {
    if (members.empty() || spec(members[0]).optimizer != Optimizer::kMuon) {
      continue;
    }
    std::vector<int32_t> expected = members;
    std::sort(expected.begin(), expected.end(), by_module);
    module = module && members == expected;
    std::stable_sort(
        expected.begin(), expected.end(),
        [&](int32_t a, int32_t b) { return spec(a).shape > spec(b).shape; });
    sorted = sorted && members == expected;
  }
  if (sorted != module) {
    return sorted ? "sorted by shape" : "module";
  }
  return sorted ? "both" : "other";
}

CheckpointInfo InfoOf(const Checkpoint& source, const TargetLayout& target) {
  CheckpointInfo info = source.info();
  info.format = kShortName;
  info.producer = kProducer;
  info.path.clear();
  info.tag.clear();
  info.identity.clear();
  info.stage = target.partitioning.stage();
  info.num_ranks = target.partitioning.num_ranks();
  info.optimizer_class = target.optimizer_class;
  info.precision = target.precision;
  info.offload = target.offload;
  info.order = OrderOf(target, info.module_order);
  if (info.momentum) {
    info.momentum->stored_form =
        *info.stage == 3 ? "sub-group partition" : "flat partition";
  }
  // Notes are about the source's files.
  std::erase_if(info.findings, [](const Finding& finding) {
    return finding.severity == Finding::Severity::kNote;
  });
  info.total_bytes = 0;
  info.num_files = 0;
  return info;
}

// Tensors in flat order of the target, then those in no flat group.
std::vector<size_t> TensorOrder(const Checkpoint& source,
                                const Partitioning& partitioning,
                                const std::vector<int32_t>& parameter_of) {
  std::vector<size_t> place(static_cast<size_t>(partitioning.num_parameters()));
  size_t next = 0;
  for (const FlatGroup& group : partitioning.groups()) {
    for (const int32_t parameter : group.parameters) {
      place[static_cast<size_t>(parameter)] = next++;
    }
  }
  const auto key = [&](size_t tensor) {
    const int32_t parameter = parameter_of[tensor];
    const bool flat =
        parameter >= 0 && partitioning.flat_group_of(parameter) >= 0;
    return flat ? place[static_cast<size_t>(parameter)] : next;
  };
  std::vector<size_t> order(source.tensors().size());
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return key(a) < key(b); });
  return order;
}

// Hands out slots; those of flat groups come first.
class SlotTable {
 public:
  explicit SlotTable(const Partitioning& partitioning)
      : partitioning_(partitioning) {}

  // For the state of a parameter in a flat group.
  int32_t Flat(int32_t flat_group, const StateKind& kind, DType dtype) {
    const auto [it, added] = flat_.try_emplace(
        {flat_group, kind, dtype}, static_cast<int32_t>(slots_.size()));
    if (added) {
      const auto& group =
          partitioning_.groups()[static_cast<size_t>(flat_group)];
      slots_.push_back({.kind = kind,
                        .dtype = dtype,
                        .flat_group = flat_group,
                        .num_elements = group.partition_elements});
      flat_bytes_ += group.partition_elements * SizeBytes(dtype);
    }
    return it->second;
  }

  // After all Flat() calls.
  int32_t Single(const CheckpointTensor& tensor) {
    if (by_load_.empty()) {
      for (int32_t rank = 0; rank < partitioning_.num_ranks(); ++rank) {
        by_load_.emplace(flat_bytes_, rank);
      }
    }
    const auto [load, rank] = by_load_.top();
    by_load_.pop();
    const int64_t num_elements = tensor.shape.num_elements();
    by_load_.emplace(load + num_elements * SizeBytes(tensor.dtype), rank);
    slots_.push_back({.kind = tensor.key.kind,
                      .dtype = tensor.dtype,
                      .rank = rank,
                      .num_elements = num_elements});
    return static_cast<int32_t>(slots_.size() - 1);
  }

  std::vector<Slot> Take() { return std::move(slots_); }

 private:
  using Load = std::pair<int64_t, int32_t>;  // Bytes, rank.

  const Partitioning& partitioning_;
  std::vector<Slot> slots_;
  std::map<std::tuple<int32_t, StateKind, DType>, int32_t> flat_;
  int64_t flat_bytes_ = 0;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> by_load_;
};

class Planner {
 public:
  Planner(const Checkpoint& source, const TargetLayout& target)
      : source_(source), target_(target), slots_(target.partitioning) {
    std::unordered_map<std::string, int32_t> by_name;
    for (size_t i = 0; i < target.specs.size(); ++i) {
      by_name.emplace(target.specs[i].name, static_cast<int32_t>(i));
    }
    for (const CheckpointTensor& tensor : source.tensors()) {
      const auto it = by_name.find(tensor.key.parameter);
      parameter_of_.push_back(it == by_name.end() ? -1 : it->second);
    }
  }

  PlannedManifest Run() {
    PlannedManifest plan;
    plan.source_tensors =
        TensorOrder(source_, target_.partitioning, parameter_of_);
    auto& tensors = plan.manifest.tensors;
    for (const size_t i : plan.source_tensors) {
      tensors.push_back(
          {.tensor = source_.tensors()[i], .parameter = parameter_of_[i]});
      PlaceFlat(tensors.back());
    }
    for (ManifestTensor& entry : tensors) {
      if (entry.slot < 0 && !entry.tensor.derived && HasElements(entry)) {
        entry.slot = slots_.Single(entry.tensor);
      }
      Count(entry);
    }
    PlaceDerived(tensors);
    plan.manifest.slots = slots_.Take();
    return plan;
  }

 private:
  static bool HasElements(const ManifestTensor& entry) {
    return entry.tensor.shape.num_elements() > 0;
  }

  static void Count(ManifestTensor& entry) {
    CheckpointTensor& tensor = entry.tensor;
    tensor.stored_bytes =
        tensor.derived ? 0
                       : static_cast<uint64_t>(tensor.shape.num_elements() *
                                               SizeBytes(tensor.dtype));
  }

  void PlaceFlat(ManifestTensor& entry) {
    const CheckpointTensor& tensor = entry.tensor;
    if (entry.parameter < 0 || tensor.derived || !HasElements(entry)) {
      return;
    }
    const int32_t group = target_.partitioning.flat_group_of(entry.parameter);
    const ParameterSpec& spec =
        target_.specs[static_cast<size_t>(entry.parameter)];
    // State of another shape than its parameter's is not cut with it.
    if (group >= 0 && spec.shape == tensor.shape) {
      entry.slot = slots_.Flat(group, tensor.key.kind, tensor.dtype);
    }
  }

  // A derived weight lies where its master does.
  static void PlaceDerived(std::vector<ManifestTensor>& tensors) {
    std::unordered_map<std::string, int32_t> master_slots;
    for (const ManifestTensor& entry : tensors) {
      if (entry.tensor.key.kind == kMaster) {
        master_slots.emplace(entry.tensor.key.parameter, entry.slot);
      }
    }
    for (ManifestTensor& entry : tensors) {
      const auto master = master_slots.find(entry.tensor.key.parameter);
      if (!entry.tensor.derived || !HasElements(entry)) {
        continue;
      }
      if (master == master_slots.end()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "the weight is derived from a master that is not there",
                    {.tensor = entry.tensor.key.ToString()});
      }
      entry.slot = master->second;
    }
  }

  const Checkpoint& source_;
  const TargetLayout& target_;
  std::vector<int32_t> parameter_of_;  // By the source's tensors.
  SlotTable slots_;
};

// Stable, so that slots which `wanted` does not name keep their order.
void OrderSlots(std::span<const FlatSlot> wanted, Manifest& manifest) {
  std::map<std::pair<int32_t, StateKind>, size_t> place;
  for (const FlatSlot& slot : wanted) {
    place.emplace(std::pair(slot.flat_group, slot.kind), place.size());
  }
  const auto place_of = [&](size_t i) {
    const Slot& slot = manifest.slots[i];
    const auto found = place.find({slot.flat_group, slot.kind});
    const size_t last = place.size() + (slot.flat_group < 0 ? 1 : 0);
    return found == place.end() ? last : found->second;
  };
  std::vector<size_t> order(manifest.slots.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return place_of(a) < place_of(b);
  });
  std::vector<int32_t> new_index(order.size());
  std::vector<Slot> slots;
  for (const size_t old : order) {
    new_index[old] = static_cast<int32_t>(slots.size());
    slots.push_back(manifest.slots[old]);
  }
  manifest.slots = std::move(slots);
  for (ManifestTensor& entry : manifest.tensors) {
    if (entry.slot >= 0) {
      entry.slot = new_index[static_cast<size_t>(entry.slot)];
    }
  }
}

}  // namespace

PlannedManifest PlanManifest(const Checkpoint& source,
                             const TargetLayout& target,
                             std::span<const FlatSlot> slot_order) {
  PlannedManifest plan = Planner(source, target).Run();
  OrderSlots(slot_order, plan.manifest);
  Manifest& manifest = plan.manifest;
  manifest.source = source.info().producer;
  manifest.info = InfoOf(source, target);
  manifest.rule = target.rule;
  manifest.rule.stage = target.partitioning.stage();
  manifest.rule.num_ranks = target.partitioning.num_ranks();
  manifest.parameters = target.specs;
  manifest.flat_groups.assign(target.partitioning.groups().begin(),
                              target.partitioning.groups().end());
  manifest.files.resize(static_cast<size_t>(manifest.rule.num_ranks));
  // As many offsets as segments; their values come with the writing.
  for (const Slot& slot : manifest.slots) {
    for (int32_t rank = 0; rank < manifest.rule.num_ranks; ++rank) {
      if (slot.flat_group >= 0 || slot.rank == rank) {
        manifest.files[static_cast<size_t>(rank)].segment_offsets.push_back(0);
      }
    }
  }
  return plan;
}

}  // namespace muonstore::native
