#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "formats/native/hash.h"
#include "formats/native/manifest.h"
#include "formats/native/manifest_names.h"
#include "formats/native/text.h"
#include "src/base/str.h"

#include <nlohmann/json.hpp>

namespace muonstore::native {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const std::string& text) { return EscapeText(text); }

// JSON has no infinities.
Json ToJson(double value) {
  if (std::isfinite(value)) {
    return value;
  }
  const char* word = value > 0 ? "inf" : "-inf";
  return {{"float", std::isnan(value) ? "nan" : word}};
}

Json ToJson(const Scalar& value) {
  return std::visit(
      [](const auto& held) -> Json {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, std::monostate>) {
          return nullptr;
        } else if constexpr (std::is_same_v<Held, std::vector<double>>) {
          Json list = Json::array();
          for (const double item : held) {
            list.push_back(ToJson(item));
          }
          return list;
        } else if constexpr (std::is_same_v<Held, double> ||
                             std::is_same_v<Held, std::string>) {
          return ToJson(held);
        } else {
          return held;
        }
      },
      value);
}

Json ToJson(const ScalarMap& map) {
  Json list = Json::array();
  for (const auto& [name, value] : map) {
    list.push_back(Json::array({ToJson(name), ToJson(value)}));
  }
  return list;
}

Json ToJson(const std::vector<std::string>& names) {
  Json list = Json::array();
  for (const std::string& name : names) {
    list.push_back(ToJson(name));
  }
  return list;
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json ToJson(const ParamGroup& group) {
  return {{"name", ToJson(group.name)},
          {"optimizer", WordOf(kOptimizerWords, group.optimizer)},
          {"step", OrNull(group.step)},
          {"num_parameters", group.num_parameters},
          {"num_elements", group.num_elements},
          {"hyper_parameters", ToJson(group.hyper_parameters)}};
}

Json ToJson(const std::optional<MomentumRecord>& record) {
  if (!record) {
    return nullptr;
  }
  const auto number = [](const std::optional<double>& value) {
    return value ? ToJson(*value) : Json(nullptr);
  };
  return {{"convention", WordOf(kConventionWords, record->convention)},
          {"unit", WordOf(kUnitWords, record->unit)},
          {"unit_scale", number(record->unit_scale)},
          {"scale_in_file", number(record->scale_in_file)},
          {"stored_form", ToJson(record->stored_form)}};
}

Json ToJson(const Finding& finding) {
  return {{"severity", WordOf(kSeverityWords, finding.severity)},
          {"code", ToJson(finding.code)},
          {"message", ToJson(finding.message)},
          {"tensor", ToJson(finding.place.tensor)}};
}

Json RunToJson(const CheckpointInfo& info) {
  return {{"step", OrNull(info.step)},
          {"stage", OrNull(info.stage)},
          {"num_ranks", info.num_ranks},
          {"optimizer_class", ToJson(info.optimizer_class)},
          {"precision", ToJson(info.precision)},
          {"offload", ToJson(info.offload)},
          {"order", ToJson(info.order)}};
}

Json ToJson(const ZeroRule& rule) {
  Json json = {{"stage", rule.stage},
               {"num_ranks", rule.num_ranks},
               {"muon_order", WordOf(kOrderWords, rule.muon_order)},
               {"flat_alignment_elements", rule.flat_alignment_elements},
               {"round_robin", rule.round_robin},
               {"parameter_alignment", rule.parameter_alignment},
               {"sub_group_size", rule.sub_group_size}};
  if (rule.whole_rows) json["whole_rows"] = true;
  return json;
}

Json ToJson(const ParameterSpec& spec) {
  return {{"name", ToJson(spec.name)},
          {"shape", spec.shape.dims()},
          {"group", spec.group},
          {"optimizer", WordOf(kOptimizerWords, spec.optimizer)},
          {"weight_dtype", DTypeName(spec.weight_dtype)}};
}

Json ToJson(const FlatGroup& group) {
  return {{"group", group.group},
          {"parameters", group.parameters},
          {"pad_after", group.pad_after},
          {"partition_elements", group.partition_elements}};
}

Json ToJson(const Slot& slot) {
  Json json = {{"kind", ToJson(slot.kind)},
               {"dtype", DTypeName(slot.dtype)},
               {"num_elements", slot.num_elements}};
  if (slot.flat_group >= 0) {
    json["flat_group"] = slot.flat_group;
  } else {
    json["rank"] = slot.rank;
  }
  return json;
}

// True where parameter and slot say all that there is to say of a tensor.
bool IsPlain(const ManifestTensor& entry, const Manifest& manifest) {
  if (entry.parameter < 0 || entry.slot < 0) {
    return false;
  }
  const CheckpointTensor& tensor = entry.tensor;
  const Slot& slot = manifest.slots[static_cast<size_t>(entry.slot)];
  const ParameterSpec& spec =
      manifest.parameters[static_cast<size_t>(entry.parameter)];
  return !tensor.derived && tensor.missing.empty() &&
         tensor.key.kind == slot.kind && tensor.dtype == slot.dtype &&
         tensor.shape == spec.shape && tensor.group == spec.group &&
         tensor.optimizer == spec.optimizer;
}

Json TensorToJson(const ManifestTensor& entry, const Manifest& manifest) {
  if (IsPlain(entry, manifest)) {
    return Json::array({entry.parameter, entry.slot});
  }
  const CheckpointTensor& tensor = entry.tensor;
  Json json;
  if (entry.parameter >= 0) {
    json["parameter"] = entry.parameter;
  } else {
    json["name"] = ToJson(tensor.key.parameter);
  }
  json["kind"] = ToJson(tensor.key.kind);
  json["shape"] = tensor.shape.dims();
  json["dtype"] = DTypeName(tensor.dtype);
  json["group"] = tensor.group;
  json["optimizer"] = WordOf(kOptimizerWords, tensor.optimizer);
  json["slot"] = entry.slot;
  if (tensor.derived) {
    json["derived"] = true;
  }
  if (!tensor.missing.empty()) {
    Json& missing = json["missing"] = Json::array();
    for (const ElementRange& range : tensor.missing) {
      missing.push_back({range.begin, range.end});
    }
  }
  return json;
}

Json ToJson(const RankFile& file) {
  return {{"size", file.size_bytes},
          {"head_xxh3_64", ToHex(file.head_digest)},
          {"tail_offset", file.tail_offset},
          {"tail_xxh3_64", ToHex(file.tail_digest)},
          {"segment_offsets", file.segment_offsets}};
}

Json ToJson(const FileDigest& file) {
  return {{"size", file.size_bytes}, {"xxh3_64", ToHex(file.digest)}};
}

Json ViewToJson(const Manifest& manifest) {
  if (manifest.view) {
    return ToJson(*manifest.view);
  }
  return {{"omitted", ToJson(manifest.view_omitted)}};
}

Json ToJson(const CarriedValue& value) {
  return Json::array({ToJson(value.path), ToJson(value.summary)});
}

template <typename T>
Json ListToJson(const std::vector<T>& items) {
  Json list = Json::array();
  for (const T& item : items) {
    list.push_back(ToJson(item));
  }
  return list;
}

Json TensorsToJson(const Manifest& manifest) {
  Json list = Json::array();
  for (const ManifestTensor& entry : manifest.tensors) {
    list.push_back(TensorToJson(entry, manifest));
  }
  return list;
}

Json ToJson(const std::map<std::string, std::string>& texts) {
  Json list = Json::array();
  for (const auto& [name, text] : texts) {
    list.push_back(Json::array({ToJson(name), ToJson(text)}));
  }
  return list;
}

// One line a field, and one an item of a long list: for people and for diff.
class Text {
 public:
  void Field(std::string_view key, const Json& value) {
    text_ += StrCat(text_.empty() ? "{\n" : ",\n", "\"", key, "\":");
    const bool items =
        value.is_array() && !value.empty() && value.front().is_structured();
    if (!items) {
      text_ += value.dump();
      return;
    }
    const char* before = "[\n";
    for (const Json& item : value) {
      text_ += before + item.dump();
      before = ",\n";
    }
    text_ += "\n]";
  }

  std::string Finish() {
    text_ += ",\n";
    const uint64_t digest = Hash64(std::as_bytes(std::span(text_)));
    return StrCat(text_, kDigestKey, ToHex(digest), kDigestEnd);
  }

 private:
  std::string text_;
};

// The first that has what the manifest says.
int64_t VersionOf(const Manifest& manifest) {
  if (manifest.rule.whole_rows) return 3;
  return manifest.info.matrix_layouts.empty() ? 1 : 2;
}

}  // namespace

std::string WriteManifest(const Manifest& manifest) {
  const CheckpointInfo& info = manifest.info;
  Text text;
  text.Field("format", kFormatName);
  text.Field("version", VersionOf(manifest));
  text.Field("save_id", manifest.save_id);
  text.Field("producer", ToJson(info.producer));
  text.Field("source", ToJson(manifest.source));
  text.Field("compression", WordOf(kCompressionWords, manifest.compressed));
  text.Field("block_bytes", manifest.block_bytes);
  text.Field("run", RunToJson(info));
  text.Field("groups", ListToJson(info.groups));
  text.Field("momentum", ToJson(info.momentum));
  text.Field("counters", ToJson(info.counters));
  text.Field("module_order", ToJson(info.module_order));
  text.Field("aliases", ToJson(info.aliases));
  text.Field("frozen", ToJson(info.frozen));
  if (!info.matrix_layouts.empty()) {
    text.Field("matrix_layouts", ToJson(info.matrix_layouts));
  }
  text.Field("carried_values", ListToJson(info.carried));
  text.Field("findings", ListToJson(info.findings));
  text.Field("rule", ToJson(manifest.rule));
  text.Field("parameters", ListToJson(manifest.parameters));
  text.Field("flat_groups", ListToJson(manifest.flat_groups));
  text.Field("slots", ListToJson(manifest.slots));
  text.Field("tensors", TensorsToJson(manifest));
  text.Field("rank_files", ListToJson(manifest.files));
  text.Field("checksums", ToJson(manifest.checksums));
  text.Field("view", ViewToJson(manifest));
  text.Field("carried_files", ListToJson(manifest.carried));
  return text.Finish();
}

}  // namespace muonstore::native
