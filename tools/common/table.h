// Aligned columns of text.
//
// What: cells are printable text (src/base/str.h: Printable). Two spaces
//   between columns, no trailing blanks, no colors.
// Ownership: owns its cells.
// Threads: a plain value.

#ifndef MUONSTORE_TOOLS_COMMON_TABLE_H_
#define MUONSTORE_TOOLS_COMMON_TABLE_H_

#include <string>
#include <vector>

namespace muonstore::tools {

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as columns.
  void AddRow(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  // A title line (unless all titles are empty) and the rows, each behind
  // `indent`, each with a newline.
  std::string ToString(const std::string& indent = "") const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Characters that a terminal shows for UTF-8 text (of single-width scripts).
size_t DisplayWidth(const std::string& text);

// For the columns of numbers.
inline constexpr auto kRight = Table::Align::kRight;

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_COMMON_TABLE_H_
