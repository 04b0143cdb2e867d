#include "converters/run_settings.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "formats/torchfile/carried_state.h"
#include "muonstore/error.h"
#include "muonstore/partitioning.h"
#include "src/base/str.h"
#include "src/base/unique_json_keys.h"

#include <nlohmann/json.hpp>

namespace muonstore {
namespace {

using Json = nlohmann::json;
using torchfile::Value;
using torchfile::ValueType;

constexpr uint64_t kMaxConfigBytes = 16 << 20;
// Of the parts of a config that matter here.
constexpr int kMaxDepth = 4;

constexpr const char* kZero = "zero_optimization";

// The dicts, numbers, strings and bools of a config; all else is null.
Json ToJson(const Value& value, int depth) {
  switch (value.type()) {
    case ValueType::kBool:
      return value.AsBool();
    case ValueType::kInt:
      return value.AsInt();
    case ValueType::kFloat:
      return value.AsNumber();
    case ValueType::kString:
      return value.AsString();
    case ValueType::kDict:
      break;
    default:
      return nullptr;
  }
  Json json = Json::object();
  for (size_t i = 0; depth > 0 && i < value.size(); ++i) {
    const auto [key, item] = value.entry(i);
    if (key.is(ValueType::kString)) {
      json[key.AsString()] = ToJson(item, depth - 1);
    }
  }
  return json;
}

[[noreturn]] void FailKey(std::initializer_list<const char*> keys,
                          std::string_view message, std::string found) {
  std::string name;
  for (const char* key : keys) name += StrCat(name.empty() ? "" : ".", key);
  throw Error(ErrorCode::kInvalidArgument, StrCat(name, " ", message),
              {.found = std::move(found)});
}

// The value at the end of a path of keys; null where there is none.
Json At(const Json& json, std::initializer_list<const char*> keys) {
  const Json* at = &json;
  for (const char* key : keys) {
    if (!at->is_object() || !at->contains(key)) return nullptr;
    at = &(*at)[key];
  }
  return *at;
}

std::optional<bool> BoolAt(const Json& json,
                           std::initializer_list<const char*> keys) {
  const Json value = At(json, keys);
  if (!value.is_boolean() && !value.is_null() && value != "auto") {
    FailKey(keys, "is neither true nor false", value.dump());
  }
  return value.is_boolean() ? std::optional(value.get<bool>()) : std::nullopt;
}

// Also of 1e9, which JSON has for a whole number.
std::optional<int64_t> IntAt(const Json& json,
                             std::initializer_list<const char*> keys) {
  const Json value = At(json, keys);
  if (value.is_null() || value == "auto") return std::nullopt;
  if (!value.is_number()) {
    FailKey(keys, "is no number", value.dump());
  }
  const double number = value.get<double>();
  if (!(std::abs(number) < 9e18) || number != std::floor(number)) {
    FailKey(keys, "is no whole number", FormatNumber(number));
  }
  return value.is_number_integer() ? value.get<int64_t>()
                                   : static_cast<int64_t>(number);
}

std::optional<std::string> StringAt(const Json& json,
                                    std::initializer_list<const char*> keys) {
  const Json value = At(json, keys);
  if (!value.is_string() || value == "auto") return std::nullopt;
  return value.get<std::string>();
}

std::optional<std::string> PrecisionOf(const Json& config) {
  const bool bf16 =
      BoolAt(config, {"bf16", "enabled"})
          .value_or(BoolAt(config, {"bfloat16", "enabled"}).value_or(false));
  const bool fp16 = BoolAt(config, {"fp16", "enabled"}).value_or(false);
  if (bf16 && fp16) {
    throw Error(ErrorCode::kInvalidArgument,
                "enables both bf16 and fp16; DeepSpeed refuses that, too");
  }
  if (bf16) return "bf16";
  if (fp16) return "fp16";
  // "auto" may become any of them.
  for (const char* key : {"bf16", "bfloat16", "fp16"}) {
    if (At(config, {key, "enabled"}) == "auto") return std::nullopt;
  }
  return "fp32";
}

void RequireZeroStage(const RunSettings& settings) {
  if (settings.stage && (*settings.stage < 1 || *settings.stage > 3)) {
    throw Error(ErrorCode::kInvalidArgument,
                "only ZeRO stages 1, 2 and 3 can be written",
                {.expected = "1, 2 or 3", .found = StrCat(*settings.stage)});
  }
}

RunSettings Parse(const Json& config) {
  const Json zero = At(config, {kZero});
  RunSettings settings;
  if (const auto stage = IntAt(config, {kZero, "stage"})) {
    settings.stage = static_cast<int32_t>(
        std::clamp<int64_t>(*stage, -1, std::numeric_limits<int32_t>::max()));
  }
  settings.precision = PrecisionOf(config);
  settings.offload = StringAt(config, {kZero, "offload_optimizer", "device"});
  if (!settings.offload && zero.is_object()) {
    settings.offload =
        BoolAt(config, {kZero, "cpu_offload"}).value_or(false) ? "cpu" : "none";
  }
  // What a config leaves out has DeepSpeed's default.
  if (At(config, {kZero, "sub_group_size"}) != "auto") {
    settings.sub_group_size = IntAt(config, {kZero, "sub_group_size"})
                                  .value_or(ZeroRule().sub_group_size);
    if (*settings.sub_group_size < 1) {
      FailKey({kZero, "sub_group_size"}, "is no size",
              StrCat(*settings.sub_group_size));
    }
  }
  settings.round_robin =
      BoolAt(config, {kZero, "round_robin_gradients"}).value_or(false);
  settings.parameter_alignment =
      BoolAt(config, {kZero, "parameter_alignment"}).value_or(false);
  const auto dtype = StringAt(config, {"data_types", "grad_accum_dtype"});
  settings.f32_gradients = dtype == "fp32" || dtype == "float32";
  return settings;
}

// DeepSpeed refuses a key that comes twice, too.
Json ParseConfig(const std::string& text, const std::string& path) {
  const auto refuse = [&](const std::string& key) {
    throw Error(ErrorCode::kInvalidArgument, "a key comes twice",
                {.file = path, .found = key});
  };
  // Comments are common in configs that are written by hand.
  return Json::parse(text, UniqueJsonKeys<Json>(refuse),
                     /*allow_exceptions=*/false,
                     /*ignore_comments=*/true);
}

}  // namespace

RunSettings ReadRunConfig(FileSystem& fs, const std::string& path) {
  const std::string text = ReadSmallFile(fs, path, kMaxConfigBytes);
  const Json json = ParseConfig(text, path);
  if (!json.is_object()) {
    throw Error(ErrorCode::kInvalidArgument,
                "is no DeepSpeed config: not a JSON object", {.file = path});
  }
  try {
    RunSettings settings = Parse(json);
    if (!settings.stage && At(json, {kZero, "stage"}) != "auto") {
      // DeepSpeed's reading of an old form, and its default.
      settings.stage = At(json, {kZero}) == true ? 1 : 0;
    }
    RequireZeroStage(settings);
    return settings;
  } catch (const Error& error) {
    throw error.WithFile(path);
  }
}

RunSettings CarriedSettings(const Checkpoint& checkpoint) {
  const torchfile::CarriedState* carried = checkpoint.carried_state();
  if (carried == nullptr || carried->num_ranks() == 0) return {};
  const torchfile::CarriedRank rank = carried->rank(0);
  for (const auto& tree : {rank.model_states, rank.optim_states}) {
    if (!tree || !tree->value().is(ValueType::kDict)) continue;
    const auto config = tree->value().Find("ds_config");
    if (config && config->is(ValueType::kDict)) {
      return Parse(ToJson(*config, kMaxDepth));
    }
  }
  return {};
}

RunSettings Merge(RunSettings over, const RunSettings& base) {
  const auto fill = [](auto& to, const auto& from) {
    if (!to) to = from;
  };
  fill(over.stage, base.stage);
  fill(over.num_ranks, base.num_ranks);
  fill(over.precision, base.precision);
  fill(over.offload, base.offload);
  fill(over.sub_group_size, base.sub_group_size);
  fill(over.round_robin, base.round_robin);
  fill(over.parameter_alignment, base.parameter_alignment);
  fill(over.f32_gradients, base.f32_gradients);
  return over;
}

}  // namespace muonstore
