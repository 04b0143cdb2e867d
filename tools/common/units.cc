#include "tools/common/units.h"

#include <array>
#include <charconv>
#include <utility>

#include "src/base/str.h"

namespace muonstore::tools {
namespace {

std::string Rounded(double value, std::chars_format format, int precision) {
  std::array<char, 512> buffer{};
  const auto result = std::to_chars(
      buffer.data(), buffer.data() + buffer.size(), value, format, precision);
  return {buffer.data(), result.ptr};
}

}  // namespace

std::string HumanBytes(uint64_t bytes) {
  static constexpr std::array<std::string_view, 7> kUnits = {
      "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return StrCat(bytes, " B");
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  // 1023.95 would be printed as 1024.0.
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return StrCat(Rounded(value, std::chars_format::fixed, 1), " ", kUnits[unit]);
}

std::optional<uint64_t> ParseBytes(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, uint64_t>, 10>
      kUnits = {{{"", 1},
                 {"B", 1},
                 {"KB", 1'000},
                 {"MB", 1'000'000},
                 {"GB", 1'000'000'000},
                 {"TB", 1'000'000'000'000},
                 {"KiB", uint64_t{1} << 10},
                 {"MiB", uint64_t{1} << 20},
                 {"GiB", uint64_t{1} << 30},
                 {"TiB", uint64_t{1} << 40}}};
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number >= 0)) return std::nullopt;
  const std::string_view unit =
      text.substr(static_cast<size_t>(end - text.data()));
  for (const auto& [name, bytes] : kUnits) {
    const double value = number * static_cast<double>(bytes);
    if (name == unit && value < 9e18) return static_cast<uint64_t>(value);
  }
  return std::nullopt;
}

std::string HumanCount(int64_t count) {
  std::string digits = StrCat(count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string Counted(int64_t count, std::string_view one,
                    std::string_view many) {
  return StrCat(HumanCount(count), " ", count == 1 ? one : many);
}

std::string HumanAge(int64_t seconds) {
  static constexpr std::array<std::pair<int64_t, std::string_view>, 3> kSteps =
      {{{86400, "day"}, {3600, "h"}, {60, "min"}}};
  for (const auto& [length, unit] : kSteps) {
    const int64_t count = seconds / length;
    if (count < 1) continue;
    const bool plural = unit == "day" && count != 1;
    return StrCat(count, " ", unit, plural ? "s" : "");
  }
  return StrCat(seconds < 0 ? 0 : seconds, " s");
}

std::string ShortNumber(double value) {
  return Rounded(value, std::chars_format::general, 4);
}

std::string ShortNumber(std::optional<double> value) {
  return value ? ShortNumber(*value) : "-";
}

std::string FloatText(double value) {
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(
      buffer.data(), buffer.data() + buffer.size(), static_cast<float>(value));
  return {buffer.data(), result.ptr};
}

std::string Percent(double fraction) {
  return StrCat(Rounded(fraction * 100, std::chars_format::general, 3), " %");
}

}  // namespace muonstore::tools
