// Matrix layouts as text, read back.
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "muonstore/matrix_layout.h"

namespace muonstore {
namespace {

std::optional<int64_t> ParseSize(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole =
      error == std::errc() && end == text.data() + text.size();
  return is_whole && value >= 0 ? std::optional(value) : std::nullopt;
}

// What stands between "<name>[" and "]".
std::optional<std::string_view> Inside(std::string_view text,
                                       std::string_view name) {
  if (!text.starts_with(name) || !text.ends_with(']')) return std::nullopt;
  text.remove_prefix(name.size());
  if (!text.starts_with('[')) return std::nullopt;
  return text.substr(1, text.size() - 2);
}

// "24,24,24"; empty for anything else.
std::vector<int64_t> ParseSizes(std::string_view text) {
  std::vector<int64_t> sizes;
  while (true) {
    const size_t comma = text.find(',');
    const auto size = ParseSize(text.substr(0, comma));
    if (!size) return {};
    sizes.push_back(*size);
    if (comma == std::string_view::npos) return sizes;
    text.remove_prefix(comma + 1);
  }
}

// "4 x (2 + 2)": groups and queries of each.
std::optional<std::pair<int64_t, int64_t>> ParseGroups(std::string_view text) {
  constexpr std::string_view kBetween = " x (";
  constexpr std::string_view kEnd = " + 2)";
  const size_t at = text.find(kBetween);
  if (at == std::string_view::npos || !text.ends_with(kEnd)) {
    return std::nullopt;
  }
  text.remove_suffix(kEnd.size());
  const auto groups = ParseSize(text.substr(0, at));
  if (at + kBetween.size() > text.size()) return std::nullopt;
  const auto queries = ParseSize(text.substr(at + kBetween.size()));
  if (!groups || !queries) return std::nullopt;
  return std::pair(*groups, *queries);
}

std::optional<MatrixLayout> ParseSized(std::string_view text) {
  if (const auto inside = Inside(text, "packed_rows")) {
    std::vector<int64_t> sizes = ParseSizes(*inside);
    if (sizes.empty()) return std::nullopt;
    return MatrixLayout::PackedRows(std::move(sizes));
  }
  if (const auto inside = Inside(text, "per_head")) {
    const auto heads = ParseSize(*inside);
    if (!heads) return std::nullopt;
    return MatrixLayout::PerHead(*heads);
  }
  for (const bool packed : {false, true}) {
    const auto inside =
        Inside(text, packed ? "interleaved_packed" : "interleaved_heads");
    const auto groups = inside ? ParseGroups(*inside) : std::nullopt;
    if (!groups) continue;
    const auto [count, queries] = *groups;
    return packed ? MatrixLayout::InterleavedPacked(count, queries)
                  : MatrixLayout::InterleavedHeads(count, queries);
  }
  return std::nullopt;
}

}  // namespace

std::optional<MatrixLayout> MatrixLayout::Parse(std::string_view text) {
  if (text == "whole") return Whole();
  if (text == "conv_folded") return ConvFolded();
  if (text == "experts") return Experts();
  return ParseSized(text);
}

}  // namespace muonstore
