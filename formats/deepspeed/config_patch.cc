#include "formats/deepspeed/config_patch.h"

#include <optional>
#include <vector>

#include "formats/deepspeed/run_config.h"
#include "formats/deepspeed/values.h"

namespace muonstore::deepspeed {
namespace {

using torchfile::NodeId;
using torchfile::Value;

constexpr int64_t kDefaultSubGroupSize = 1'000'000'000;

void PatchOffload(const Target& target, const std::optional<Value>& config,
                  FileDraft& file, std::vector<Replacement>& patches) {
  const std::string& offload = target.layout().offload;
  if (ParseRunConfig(config).offload != offload) {
    patches.emplace_back("cpu_offload", std::nullopt);
    std::optional<NodeId> section;
    if (offload != "none") {
      section = file.draft().Dict();
      file.draft().SetItem(*section, "device", file.draft().Str(offload));
    }
    patches.emplace_back("offload_optimizer", section);
  }
  if (target.stage() < 3) {
    patches.emplace_back("offload_param", std::nullopt);
  }
}

void PatchRule(const Target& target, const std::optional<Value>& zero,
               FileDraft& file, std::vector<Replacement>& patches) {
  const ZeroRule& rule = target.layout().rule;
  const int64_t sub_group_size =
      LookupInt(zero, {"sub_group_size"}).value_or(kDefaultSubGroupSize);
  if (target.stage() == 3 && rule.sub_group_size != sub_group_size) {
    patches.emplace_back("sub_group_size",
                         file.draft().Int(rule.sub_group_size));
  }
  const auto patch_flag = [&](std::string_view name, bool value) {
    if (LookupBool(zero, {name}).value_or(false) != value) {
      patches.emplace_back(name, file.draft().Bool(value));
    }
  };
  if (target.stage() < 3) {
    patch_flag("round_robin_gradients", rule.round_robin);
    patch_flag("parameter_alignment", rule.parameter_alignment);
  }
}

}  // namespace

NodeId PatchedConfig(const Target& target, FileDraft& file) {
  const auto config = Lookup(file.carried(), {"ds_config"});
  const auto zero = Lookup(config, {"zero_optimization"});
  std::vector<Replacement> patches;
  patches.emplace_back(
      "stage",
      file.draft().Int(target.layout().config_stage.value_or(target.stage())));
  PatchOffload(target, config, file, patches);
  PatchRule(target, zero, file, patches);
  std::vector<Replacement> sections = {
      {"zero_optimization", file.Rewrite(zero, patches)}};
  const std::string& precision = target.layout().precision;
  if (!config && precision != "fp32") {
    const NodeId section = file.draft().Dict();
    file.draft().SetItem(section, "enabled", file.draft().Bool(true));
    sections.emplace_back(precision, section);
  }
  return file.Rewrite(config, sections);
}

}  // namespace muonstore::deepspeed
