// Strict reading of JSON values: types, ranges, and no field too many.
#ifndef MUONSTORE_FORMATS_NATIVE_JSON_FIELDS_H_
#define MUONSTORE_FORMATS_NATIVE_JSON_FIELDS_H_

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/native/manifest_names.h"
#include "muonstore/error.h"
#include "src/base/str.h"

#include <nlohmann/json.hpp>

namespace muonstore::native {

// Deepest nesting of a manifest that is read.
inline constexpr int kMaxJsonDepth = 16;

[[noreturn]] void FailField(std::string_view field, std::string_view expected,
                            const nlohmann::json& found);

// Error(kDataLoss) for text that is no JSON or nested too deep.
nlohmann::json ParseJson(std::string_view text);

// Each says the field's name in its error.
int64_t AsInteger(const nlohmann::json& value, std::string_view field,
                  int64_t least,
                  int64_t most = std::numeric_limits<int64_t>::max());
std::string AsText(const nlohmann::json& value, std::string_view field);
uint64_t AsDigest(const nlohmann::json& value, std::string_view field);
bool AsBool(const nlohmann::json& value, std::string_view field);
const nlohmann::json& AsArray(const nlohmann::json& value,
                              std::string_view field);

template <typename Enum, size_t N>
Enum AsWord(const nlohmann::json& value, std::string_view field,
            const Words<Enum, N>& words) {
  if (value.is_string()) {
    for (const auto& [key, word] : words) {
      if (value.get_ref<const std::string&>() == word) {
        return key;
      }
    }
  }
  FailField(field, "one of a few words", value);
}

// An array of exactly two.
std::pair<const nlohmann::json*, const nlohmann::json*> AsPair(
    const nlohmann::json& value, std::string_view field);

// Each item of an array through `parse`.
template <typename T, typename Parse>
std::vector<T> ListOf(const nlohmann::json& value, std::string_view field,
                      const Parse& parse) {
  std::vector<T> list;
  for (const nlohmann::json& item : AsArray(value, field)) {
    list.push_back(parse(item));
  }
  return list;
}

// An object whose fields must all be asked for.
class Fields {
 public:
  // Keeps a reference to `value`.
  Fields(const nlohmann::json& value, std::string_view what);

  const nlohmann::json& Get(std::string_view key);
  // Null where it is absent.
  const nlohmann::json* Find(std::string_view key);
  int64_t Integer(std::string_view key, int64_t least,
                  int64_t most = std::numeric_limits<int64_t>::max()) {
    return AsInteger(Get(key), key, least, most);
  }
  int32_t Int32(std::string_view key, int32_t least) {
    return static_cast<int32_t>(
        Integer(key, least, std::numeric_limits<int32_t>::max()));
  }
  uint64_t Size(std::string_view key) {
    return static_cast<uint64_t>(Integer(key, 0));
  }
  std::string Text(std::string_view key) { return AsText(Get(key), key); }
  uint64_t Digest(std::string_view key) { return AsDigest(Get(key), key); }
  bool Bool(std::string_view key);
  // False where it is absent.
  bool BoolOrFalse(std::string_view key);
  // Throws where the object has fields that nobody asked for.
  void Finish() const;

 private:
  const nlohmann::json& value_;
  std::string_view what_;
  size_t num_asked_ = 0;
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_JSON_FIELDS_H_
