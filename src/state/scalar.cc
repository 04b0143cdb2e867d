#include <string>
#include <variant>

#include "muonstore/checkpoint.h"
#include "src/base/str.h"
#include "src/state/scalar_map.h"

namespace muonstore {
namespace {

struct Renderer {
  std::string operator()(std::monostate) const { return "none"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return StrCat(value); }
  std::string operator()(double value) const { return FormatNumber(value); }
  std::string operator()(const std::string& value) const { return value; }
  std::string operator()(const std::vector<double>& values) const {
    std::string out = "[";
    for (size_t i = 0; i < values.size(); ++i) {
      out += (i == 0 ? "" : ", ") + FormatNumber(values[i]);
    }
    return out + "]";
  }
};

}  // namespace

std::string ScalarToString(const Scalar& value) {
  return std::visit(Renderer(), value);
}

const Scalar* FindScalar(const ScalarMap& map, std::string_view name) {
  for (const auto& [key, value] : map) {
    if (key == name) return &value;
  }
  return nullptr;
}

}  // namespace muonstore
