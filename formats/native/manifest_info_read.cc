#include "formats/native/manifest_info_read.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "muonstore/matrix_layout.h"

namespace muonstore::native {
namespace {

using nlohmann::json;

constexpr int64_t kMinInt64 = std::numeric_limits<int64_t>::min();

std::vector<std::string> ToTexts(const json& value, std::string_view field) {
  return ListOf<std::string>(
      value, field, [&](const json& item) { return AsText(item, field); });
}

double ToDouble(const json& value, std::string_view field) {
  if (value.is_number_float()) {
    return value.get<double>();
  }
  Fields fields(value, field);
  const std::string word = fields.Text("float");
  fields.Finish();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (word == "nan") {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (word != "inf" && word != "-inf") {
    FailField(field, "nan, inf or -inf", value);
  }
  return word == "inf" ? kInfinity : -kInfinity;
}

std::optional<double> ToOptionalDouble(const json& value,
                                       std::string_view field) {
  return value.is_null() ? std::nullopt : std::optional(ToDouble(value, field));
}

std::optional<int64_t> ToOptionalStep(const json& value) {
  return value.is_null() ? std::nullopt
                         : std::optional(AsInteger(value, "step", 0));
}

Scalar ToScalar(const json& value, std::string_view field) {
  if (value.is_null()) {
    return std::monostate();
  }
  if (value.is_boolean()) {
    return value.get<bool>();
  }
  if (value.is_number_integer()) {
    return AsInteger(value, field, kMinInt64);
  }
  if (value.is_string()) {
    return AsText(value, field);
  }
  if (value.is_array()) {
    return ListOf<double>(
        value, field, [&](const json& item) { return ToDouble(item, field); });
  }
  return ToDouble(value, field);
}

std::map<std::string, std::string> ToTextMap(const json& value,
                                             std::string_view field) {
  std::map<std::string, std::string> map;
  for (const json& item : AsArray(value, field)) {
    const auto [name, text] = AsPair(item, field);
    map[AsText(*name, field)] = AsText(*text, field);
  }
  return map;
}

std::map<std::string, std::string> ToLayouts(const json& value) {
  constexpr std::string_view kField = "matrix_layouts";
  auto layouts = ToTextMap(value, kField);
  for (const auto& [name, layout] : layouts) {
    if (!MatrixLayout::Parse(layout)) {
      FailField(kField, "a matrix layout", value);
    }
  }
  return layouts;
}

ScalarMap ToScalarMap(const json& value, std::string_view field) {
  ScalarMap map;
  for (const json& item : AsArray(value, field)) {
    const auto [name, scalar] = AsPair(item, field);
    map.emplace_back(AsText(*name, field), ToScalar(*scalar, field));
  }
  return map;
}

ParamGroup ToGroup(const json& value) {
  Fields fields(value, "groups");
  ParamGroup group;
  group.name = fields.Text("name");
  group.optimizer =
      AsWord(fields.Get("optimizer"), "optimizer", kOptimizerWords);
  group.step = ToOptionalStep(fields.Get("step"));
  group.num_parameters = fields.Integer("num_parameters", 0);
  group.num_elements = fields.Integer("num_elements", 0);
  group.hyper_parameters =
      ToScalarMap(fields.Get("hyper_parameters"), "hyper_parameters");
  fields.Finish();
  return group;
}

std::optional<MomentumRecord> ToMomentum(const json& value) {
  if (value.is_null()) {
    return std::nullopt;
  }
  Fields fields(value, "momentum");
  MomentumRecord record;
  record.convention =
      AsWord(fields.Get("convention"), "convention", kConventionWords);
  record.unit = AsWord(fields.Get("unit"), "unit", kUnitWords);
  record.unit_scale = ToOptionalDouble(fields.Get("unit_scale"), "unit_scale");
  record.scale_in_file =
      ToOptionalDouble(fields.Get("scale_in_file"), "scale_in_file");
  record.stored_form = fields.Text("stored_form");
  fields.Finish();
  return record;
}

Finding ToFinding(const json& value) {
  Fields fields(value, "findings");
  Finding finding;
  finding.severity = AsWord(fields.Get("severity"), "severity", kSeverityWords);
  finding.code = fields.Text("code");
  finding.message = fields.Text("message");
  finding.place.tensor = fields.Text("tensor");
  fields.Finish();
  return finding;
}

void ReadRun(const json& value, CheckpointInfo& info) {
  Fields fields(value, "run");
  info.step = ToOptionalStep(fields.Get("step"));
  if (const json& stage = fields.Get("stage"); !stage.is_null()) {
    info.stage = static_cast<int32_t>(AsInteger(stage, "stage", 1, 3));
  }
  info.num_ranks = fields.Int32("num_ranks", 1);
  info.optimizer_class = fields.Text("optimizer_class");
  info.precision = fields.Text("precision");
  info.offload = fields.Text("offload");
  info.order = fields.Text("order");
  fields.Finish();
}

}  // namespace

void ReadInfo(Fields& root, CheckpointInfo& info) {
  ReadRun(root.Get("run"), info);
  info.groups = ListOf<ParamGroup>(root.Get("groups"), "groups", ToGroup);
  info.momentum = ToMomentum(root.Get("momentum"));
  info.counters = ToScalarMap(root.Get("counters"), "counters");
  info.module_order = ToTexts(root.Get("module_order"), "module_order");
  info.aliases = ToTextMap(root.Get("aliases"), "aliases");
  info.frozen = ToTexts(root.Get("frozen"), "frozen");
  if (const json* layouts = root.Find("matrix_layouts")) {
    info.matrix_layouts = ToLayouts(*layouts);
  }
  for (const json& item :
       AsArray(root.Get("carried_values"), "carried_values")) {
    const auto [path, summary] = AsPair(item, "carried_values");
    info.carried.push_back(
        {AsText(*path, "carried_values"), AsText(*summary, "carried_values")});
  }
  info.findings = ListOf<Finding>(root.Get("findings"), "findings", ToFinding);
}

}  // namespace muonstore::native
