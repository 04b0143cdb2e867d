// The one formatting helper: GCC 12 has no <format>.
#ifndef MUONSTORE_SRC_BASE_STR_H_
#define MUONSTORE_SRC_BASE_STR_H_

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace muonstore {

// Shortest decimal that reads back as the same double: "0.02", "1e-08".
std::string FormatNumber(double value);

// The bytes of `text` with control characters and broken UTF-8 escaped, so
// that names from files cannot disturb a terminal or JSON.
std::string Printable(std::string_view text);

namespace str_internal {
inline void Append(std::string& out, std::string_view part) { out += part; }
inline void Append(std::string& out, char part) { out += part; }
// A template, so that a character array does not turn into a bool.
template <std::integral T>
void Append(std::string& out, T part) {
  if constexpr (std::same_as<T, bool>) {
    out += part ? "true" : "false";
  } else {
    out += std::to_string(part);
  }
}
inline void Append(std::string& out, double part) { out += FormatNumber(part); }
}  // namespace str_internal

// StrCat("rank ", 3, ": ", name).
template <typename... Parts>
std::string StrCat(const Parts&... parts) {
  std::string out;
  (str_internal::Append(out, parts), ...);
  return out;
}

// "a, b, c"; after `limit` items "... and N more".
std::string JoinNames(std::span<const std::string> names, size_t limit);

// {0,1,2,5} -> "0-2,5". Ascending input.
std::string FormatRanges(std::span<const int32_t> values);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_BASE_STR_H_
