#include "formats/native/json_fields.h"

#include <string>

#include "formats/native/hash.h"
#include "formats/native/text.h"
#include "src/base/unique_json_keys.h"

namespace muonstore::native {
namespace {

constexpr size_t kShownBytes = 60;

// nlohmann's parser needs no stack for nesting, but memory for each level.
void CheckDepth(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      i += c == '\\' ? 1 : 0;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    }
    if (depth > kMaxJsonDepth) {
      throw Error(ErrorCode::kDataLoss, "the manifest is nested too deep",
                  {.offset_bytes = i});
    }
  }
}

[[noreturn]] void RefuseKey(const std::string& key) {
  throw Error(ErrorCode::kDataLoss,
              StrCat("the manifest has the field ", Printable(key),
                     " twice in one object"));
}

}  // namespace

void FailField(std::string_view field, std::string_view expected,
               const nlohmann::json& found) {
  std::string shown = found.dump(-1, ' ', true);
  shown.resize(std::min(shown.size(), kShownBytes));
  throw Error(ErrorCode::kDataLoss,
              StrCat("the manifest's field ", field, " is wrong"),
              {.expected = std::string(expected), .found = std::move(shown)});
}

nlohmann::json ParseJson(std::string_view text) {
  CheckDepth(text);
  try {
    return nlohmann::json::parse(text,
                                 UniqueJsonKeys<nlohmann::json>(RefuseKey));
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kDataLoss,
                StrCat("the manifest is no JSON: ", Printable(error.what())));
  }
}

int64_t AsInteger(const nlohmann::json& value, std::string_view field,
                  int64_t least, int64_t most) {
  const bool fits =
      value.is_number_integer() &&
      !(value.is_number_unsigned() &&
        value.get<uint64_t>() >
            static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) &&
      value.get<int64_t>() >= least && value.get<int64_t>() <= most;
  if (!fits) {
    FailField(field, StrCat("an integer of ", least, " to ", most), value);
  }
  return value.get<int64_t>();
}

std::string AsText(const nlohmann::json& value, std::string_view field) {
  if (value.is_string()) {
    auto bytes = UnescapeText(value.get_ref<const std::string&>());
    if (bytes) {
      return *std::move(bytes);
    }
  }
  FailField(field, "a string, % only before two digits", value);
}

uint64_t AsDigest(const nlohmann::json& value, std::string_view field) {
  if (value.is_string()) {
    if (const auto digest = ParseHex(value.get_ref<const std::string&>())) {
      return *digest;
    }
  }
  FailField(field, "16 hexadecimal digits", value);
}

bool AsBool(const nlohmann::json& value, std::string_view field) {
  if (!value.is_boolean()) {
    FailField(field, "true or false", value);
  }
  return value.get<bool>();
}

const nlohmann::json& AsArray(const nlohmann::json& value,
                              std::string_view field) {
  if (!value.is_array()) {
    FailField(field, "an array", value);
  }
  return value;
}

std::pair<const nlohmann::json*, const nlohmann::json*> AsPair(
    const nlohmann::json& value, std::string_view field) {
  if (!value.is_array() || value.size() != 2) {
    FailField(field, "an array of two", value);
  }
  return {&value[0], &value[1]};
}

Fields::Fields(const nlohmann::json& value, std::string_view what)
    : value_(value), what_(what) {
  if (!value.is_object()) {
    FailField(what, "an object", value);
  }
}

const nlohmann::json& Fields::Get(std::string_view key) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) {
    throw Error(ErrorCode::kDataLoss,
                StrCat("the manifest lacks ", key, " in ", what_));
  }
  return *value;
}

const nlohmann::json* Fields::Find(std::string_view key) {
  const auto it = value_.find(key);
  if (it == value_.end()) {
    return nullptr;
  }
  ++num_asked_;
  return &*it;
}

bool Fields::Bool(std::string_view key) { return AsBool(Get(key), key); }

bool Fields::BoolOrFalse(std::string_view key) {
  const nlohmann::json* value = Find(key);
  return value != nullptr && AsBool(*value, key);
}

void Fields::Finish() const {
  if (num_asked_ != value_.size()) {
    throw Error(ErrorCode::kDataLoss,
                StrCat("the manifest has unknown fields in ", what_),
                {.expected = StrCat(num_asked_, " fields"),
                 .found = StrCat(value_.size())});
  }
}

}  // namespace muonstore::native
