#include "tools/common/json.h"

#include <cmath>
#include <type_traits>
#include <variant>

namespace muonstore::tools {
namespace {

Json TextOrNull(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

}  // namespace

Json JsonEnvelope(const std::string& command) {
  Json json;
  json["schema_version"] = kSchemaVersion;
  json["command"] = command;
  return json;
}

Json ToJson(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json ToJson(const Scalar& value) {
  return std::visit(
      [](const auto& item) -> Json {
        using T = std::decay_t<decltype(item)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return nullptr;
        } else if constexpr (std::is_same_v<T, double>) {
          return ToJson(item);
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          Json list = Json::array();
          for (const double entry : item) list.push_back(ToJson(entry));
          return list;
        } else {
          return item;
        }
      },
      value);
}

Json ToJson(const ScalarMap& values) {
  Json json = Json::object();
  for (const auto& [name, value] : values) json[name] = ToJson(value);
  return json;
}

Json ToJson(const ErrorPlace& place) {
  Json json;
  json["file"] = TextOrNull(place.file);
  json["tensor"] = TextOrNull(place.tensor);
  json["offset_bytes"] = ToJson(place.offset_bytes);
  json["expected"] = TextOrNull(place.expected);
  json["found"] = TextOrNull(place.found);
  return json;
}

Json ToJson(const Finding& finding) {
  Json json;
  json["severity"] = SeverityName(finding.severity);
  json["code"] = finding.code;
  json["message"] = finding.message;
  json.update(ToJson(finding.place));
  return json;
}

Json JsonError(const std::string& command, const Error& error) {
  Json json = JsonEnvelope(command);
  json["error"]["code"] = ErrorCodeName(error.code());
  json["error"]["message"] = error.message();
  json["error"].update(ToJson(error.place()));
  return json;
}

std::string Render(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::string SeverityName(Finding::Severity severity) {
  switch (severity) {
    case Finding::Severity::kNote:
      return "note";
    case Finding::Severity::kWarning:
      return "warning";
    case Finding::Severity::kFault:
      break;
  }
  return "fault";
}

}  // namespace muonstore::tools
