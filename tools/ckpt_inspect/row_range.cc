#include "tools/ckpt_inspect/row_range.h"

#include <charconv>
#include <optional>
#include <string_view>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::tools {
namespace {

std::optional<int64_t> ParseInteger(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

}  // namespace

RowRange ParseRows(const std::string& text, int64_t num_rows) {
  if (text.empty()) return {0, num_rows};
  const size_t colon = text.find(':');
  const auto side = [&](std::string_view part, int64_t otherwise) {
    if (part.empty()) return otherwise;
    const auto value = ParseInteger(part);
    if (!value || colon == std::string::npos) {
      throw Error(
          ErrorCode::kInvalidArgument,
          StrCat("--rows takes a:b with whole numbers, not '", text, "'"));
    }
    return *value < 0 ? *value + num_rows : *value;
  };
  const std::string_view view = text;
  const RowRange rows{
      side(view.substr(0, colon), 0),
      side(colon == std::string::npos ? "" : view.substr(colon + 1), num_rows)};
  if (rows.begin < 0 || rows.begin > rows.end || rows.end > num_rows) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("--rows ", text, " is outside of the tensor"),
                {.expected = StrCat("within 0:", num_rows),
                 .found = StrCat(rows.begin, ":", rows.end)});
  }
  return rows;
}

}  // namespace muonstore::tools
