#include "formats/deepspeed/target.h"

#include <algorithm>
#include <set>
#include <utility>

#include "formats/torchfile/text_codec.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::deepspeed {
namespace {

Writer WriterOf(const TargetLayout& layout) {
  if (layout.partitioning.stage() == 3) {
    return Writer::kZero3;
  }
  return layout.optimizer_class == WriterName(Writer::kBf16) ? Writer::kBf16
                                                             : Writer::kZero12;
}

// A pickle's str; DeepSpeed could not load the file.
void RequireUtf8(const std::string& name) {
  if (torchfile::IsUtf8(name)) return;
  throw Error(ErrorCode::kUnsupported,
              "DeepSpeed's files cannot hold a name that is not UTF-8",
              {.tensor = Printable(name)});
}

}  // namespace

Target::Target(const Checkpoint& source, const TargetLayout& layout)
    : index_(source), layout_(layout), writer_(WriterOf(layout)) {
  CheckModes();
  for (size_t i = 0; i < layout.specs.size(); ++i) {
    parameters_.emplace(layout.specs[i].name, static_cast<int32_t>(i));
    if (!index_.Find(layout.specs[i].name, kMaster)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the source has no master of a parameter of the target",
                  {.file = source.info().path, .tensor = layout.specs[i].name});
    }
  }
  ListModule();
  for (const ModuleEntry& entry : module_) RequireUtf8(entry.name);
}

void Target::CheckModes() const {
  if (layout_.offload == "nvme") {
    throw Error(ErrorCode::kUnsupported,
                "a checkpoint with state on NVMe cannot be written: DeepSpeed "
                "0.19.8 does not resume from its own. Convert with --offload "
                "cpu, load it with offload_optimizer.device cpu, and save");
  }
  if (layout_.offload != "none" && layout_.offload != "cpu") {
    throw Error(ErrorCode::kInvalidArgument, "unknown offload mode",
                {.expected = "none or cpu", .found = layout_.offload});
  }
  const std::string& precision = layout_.precision;
  if (precision != "bf16" && precision != "fp16" && precision != "fp32") {
    throw Error(ErrorCode::kInvalidArgument, "unknown precision",
                {.expected = "bf16, fp16 or fp32", .found = precision});
  }
  if (writer_ == Writer::kBf16 &&
      (layout_.offload != "none" || precision != "bf16" || stage() != 1)) {
    throw Error(ErrorCode::kInvalidArgument,
                "BF16_Optimizer is bf16 at stage 1 without offload",
                {.found = StrCat(precision, ", stage ", stage(), ", offload ",
                                 layout_.offload)});
  }
}

// The source's own list, or the order of its tensors where it has none.
std::vector<std::string> Target::ModuleNames() const {
  if (!source().info().module_order.empty()) {
    return source().info().module_order;
  }
  std::vector<std::string> names;
  std::unordered_set<std::string> seen;
  for (const CheckpointTensor& tensor : source().tensors()) {
    if (seen.insert(tensor.key.parameter).second) {
      names.push_back(tensor.key.parameter);
    }
  }
  for (const auto& [dropped, kept] : source().info().aliases) {
    names.push_back(dropped);
  }
  return names;
}

ModuleEntry Target::EntryOf(const std::string& name) const {
  using Kind = ModuleEntry::Kind;
  // A parameter without elements is in no flat group: saved like a frozen one.
  const auto trained = parameters_.find(name);
  if (trained != parameters_.end() &&
      partitioning().flat_group_of(trained->second) >= 0) {
    return {name, Kind::kTrained, trained->second, 0};
  }
  const auto& aliases = source().info().aliases;
  const auto alias = aliases.find(name);
  if (alias != aliases.end()) {
    ModuleEntry entry = EntryOf(alias->second);
    entry.name = name;
    if (entry.kind == Kind::kTrained) {
      entry.kind = Kind::kTied;
    }
    return entry;
  }
  if (const auto buffer = index_.Find(name, kBuffer)) {
    return {name, Kind::kBuffer, -1, *buffer};
  }
  if (const auto weight = index_.Find(name, kWeight)) {
    return {name, Kind::kFrozen, -1, *weight};
  }
  return {name, Kind::kOther, -1, 0};
}

void Target::ListModule() {
  numbers_.resize(layout_.specs.size());
  int64_t number = 0;
  for (const std::string& name : ModuleNames()) {
    module_.push_back(EntryOf(name));
    const ModuleEntry& entry = module_.back();
    if (entry.kind == ModuleEntry::Kind::kTrained) {
      numbers_[static_cast<size_t>(entry.parameter)] = number;
    }
    const bool is_frozen = entry.kind == ModuleEntry::Kind::kFrozen;
    if (is_frozen && !source().info().aliases.contains(name)) {
      frozen_.push_back(entry);
    }
    number += entry.kind == ModuleEntry::Kind::kTrained || is_frozen ? 1 : 0;
  }
}

int64_t Target::parameter_number(int32_t parameter) const {
  return numbers_[static_cast<size_t>(parameter)];
}

std::vector<std::string> Target::GroupsWithoutMomentum() const {
  const CheckpointInfo& info = source().info();
  const bool is_missing = std::any_of(
      info.findings.begin(), info.findings.end(),
      [](const Finding& f) { return f.code == "momentum_missing"; });
  if (!is_missing) {
    return {};
  }
  std::set<int32_t> with;
  std::set<int32_t> without;
  for (const ParameterSpec& spec : layout_.specs) {
    if (spec.optimizer == Optimizer::kMuon) {
      const bool has = index_.Find(spec.name, kMomentum).has_value();
      (has ? with : without).insert(spec.group);
    }
  }
  std::vector<std::string> names;
  for (const int32_t group : without) {
    if (!with.contains(group)) {
      names.push_back(info.groups[static_cast<size_t>(group)].name);
    }
  }
  return names;
}

torchfile::CarriedRank Target::Carried(int32_t rank) const {
  const torchfile::CarriedState* carried = source().carried_state();
  if (carried == nullptr || carried->num_ranks() == 0) {
    return {};
  }
  torchfile::CarriedRank mine =
      carried->rank(rank < carried->num_ranks() ? rank : 0);
  if (!mine.model_states || !mine.optim_states) {
    torchfile::CarriedRank first = carried->rank(0);
    if (!mine.model_states) {
      mine.model_states = std::move(first.model_states);
    }
    if (!mine.optim_states) {
      mine.optim_states = std::move(first.optim_states);
    }
  }
  return mine;
}

}  // namespace muonstore::deepspeed
