#include "tools/common/table.h"

#include <algorithm>

namespace muonstore::tools {
namespace {

void AppendLine(const std::vector<std::string>& cells,
                const std::vector<size_t>& widths,
                const std::vector<Table::Column>& columns, std::string& out) {
  const size_t start = out.size();
  for (size_t c = 0; c < columns.size(); ++c) {
    if (c > 0) out += "  ";
    const std::string padding(widths[c] - DisplayWidth(cells[c]), ' ');
    const bool right = columns[c].align == Table::Align::kRight;
    out += right ? padding + cells[c] : cells[c] + padding;
  }
  const size_t last = out.find_last_not_of(' ');
  out.resize(last == std::string::npos ? start : std::max(start, last + 1));
  out += '\n';
}

}  // namespace

size_t DisplayWidth(const std::string& text) {
  // Continuation bytes take no room.
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(),
      [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

void Table::AddRow(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::ToString(const std::string& indent) const {
  std::vector<std::string> titles;
  std::vector<size_t> widths;
  bool any_title = false;
  for (size_t c = 0; c < columns_.size(); ++c) {
    titles.push_back(columns_[c].title);
    any_title |= !titles.back().empty();
    widths.push_back(DisplayWidth(titles.back()));
    for (const auto& row : rows_) {
      widths[c] = std::max(widths[c], DisplayWidth(row[c]));
    }
  }
  std::string out;
  if (any_title) {
    out += indent;
    AppendLine(titles, widths, columns_, out);
  }
  for (const auto& row : rows_) {
    out += indent;
    AppendLine(row, widths, columns_, out);
  }
  return out;
}

}  // namespace muonstore::tools
