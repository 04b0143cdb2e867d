// The tools' JSON: one object on standard output.
//
// What: every object has "schema_version" and "command". Numbers that JSON
//   lacks are the strings "nan", "inf" and "-inf"; absent values are null.
//   Names from files that are not UTF-8 have their broken bytes replaced.
// Threads, failures: pure functions that do not fail.

#ifndef MUONSTORE_TOOLS_COMMON_JSON_H_
#define MUONSTORE_TOOLS_COMMON_JSON_H_

#include <optional>
#include <string>

#include "muonstore/checkpoint.h"
#include "muonstore/error.h"

#include <nlohmann/json.hpp>

namespace muonstore::tools {

using Json = nlohmann::ordered_json;

// Raised when a field changes its meaning or goes; new fields do not count.
inline constexpr int kSchemaVersion = 1;

Json JsonEnvelope(const std::string& command);

Json ToJson(double value);
Json ToJson(const Scalar& value);
Json ToJson(const ScalarMap& values);
Json ToJson(const ErrorPlace& place);
Json ToJson(const Finding& finding);

// null for none.
template <typename T>
Json ToJson(const std::optional<T>& value) {
  if (!value) return nullptr;
  if constexpr (std::is_same_v<T, double>) return ToJson(*value);
  return Json(*value);
}

// {"schema_version", "command", "error": {"code", "message", place...}}.
Json JsonError(const std::string& command, const Error& error);

// With a newline at the end.
std::string Render(const Json& json);

// "note", "warning", "fault".
std::string SeverityName(Finding::Severity severity);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_COMMON_JSON_H_
