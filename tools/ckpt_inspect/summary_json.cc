#include "tools/ckpt_inspect/state_totals.h"
#include "tools/ckpt_inspect/summary_output.h"

namespace muonstore::tools {
namespace {

Json GroupsJson(const CheckpointInfo& info) {
  Json groups = Json::array();
  for (const ParamGroup& group : info.groups) {
    Json entry;
    entry["name"] = group.name;
    entry["optimizer"] = OptimizerName(group.optimizer);
    entry["step"] = ToJson(group.step);
    entry["num_parameters"] = group.num_parameters;
    entry["num_elements"] = group.num_elements;
    entry["hyper_parameters"] = ToJson(group.hyper_parameters);
    groups.push_back(std::move(entry));
  }
  return groups;
}

Json MomentumJson(const CheckpointInfo& info) {
  if (!info.momentum) return nullptr;
  const MomentumRecord& record = *info.momentum;
  Json json;
  json["convention"] =
      record.convention == MomentumConvention::kLerp ? "lerp" : "accumulate";
  json["unit"] = record.unit == MomentumUnit::kTrue ? "true" : "loss_scaled";
  json["unit_scale"] = ToJson(record.unit_scale);
  json["scale_in_file"] = ToJson(record.scale_in_file);
  json["stored_form"] = record.stored_form;
  return json;
}

Json StateJson(const Checkpoint& checkpoint) {
  Json state = Json::array();
  for (const StateTotal& total : StateTotals(checkpoint)) {
    Json entry;
    entry["state"] = total.kind;
    entry["dtype"] = DTypeName(total.dtype);
    entry["num_tensors"] = total.num_tensors;
    entry["num_elements"] = total.num_elements;
    entry["stored_bytes"] = total.stored_bytes;
    state.push_back(std::move(entry));
  }
  return state;
}

}  // namespace

Json SummaryJson(const Checkpoint& checkpoint) {
  const CheckpointInfo& info = checkpoint.info();
  Json json = JsonEnvelope("summary");
  json["path"] = info.path;
  json["format"] = info.format;
  json["producer"] = info.producer;
  json["tag"] = info.tag;
  json["step"] = ToJson(info.step);
  json["stage"] = ToJson(info.stage);
  json["num_ranks"] = info.num_ranks;
  json["optimizer_class"] = info.optimizer_class;
  json["precision"] = info.precision;
  json["offload"] = info.offload;
  json["order"] = info.order;
  json["size_bytes"] = info.total_bytes;
  json["num_files"] = info.num_files;
  json["momentum"] = MomentumJson(info);
  json["groups"] = GroupsJson(info);
  json["state"] = StateJson(checkpoint);
  json["counters"] = ToJson(info.counters);
  json["tied"] = info.aliases;
  json["frozen"] = info.frozen;
  json["carried"] = Json::array();
  for (const CarriedValue& value : info.carried) {
    json["carried"].push_back(
        {{"path", value.path}, {"summary", value.summary}});
  }
  json["findings"] = Json::array();
  for (const Finding& finding : info.findings) {
    json["findings"].push_back(ToJson(finding));
  }
  json["from_rank_zero_only"] = info.num_ranks > 1;
  return json;
}

}  // namespace muonstore::tools
