// How a bf16 operand of packed products lies in memory.
//
// What: a matrix cut into panels of columns, each dense and row-major, so that
//   any rows of a panel are an operand whose rows follow one another. That is
//   the form that the fastest products of the library take, and it keeps rows
//   from being a power of two apart, whatever the matrix's width.
// Ownership, threads: plain values and pure functions. Failures: none.

#ifndef MUONSTORE_SRC_KERNEL_PANELS_H_
#define MUONSTORE_SRC_KERNEL_PANELS_H_

#include <algorithm>
#include <cstdint>

namespace muonstore {

// Columns of operands are padded with zeros to a multiple of this.
inline constexpr int64_t kPanelAlignment = 32;

inline int64_t RoundUp(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

struct Panels {
  int64_t rows = 0;
  int64_t cols = 0;   // With padding.
  int64_t width = 0;  // Of every panel but the last, which may be narrower.

  int64_t count() const { return (cols + width - 1) / width; }
  int64_t begin(int64_t panel) const { return panel * width; }
  int64_t width_of(int64_t panel) const {
    return std::min(width, cols - begin(panel));
  }
  int64_t size() const { return rows * cols; }
  // Elements from one row to the next where `col` is.
  int64_t ld(int64_t col) const { return width_of(col / width); }
  int64_t Offset(int64_t row, int64_t col) const {
    const int64_t panel = col / width;
    return rows * begin(panel) + row * width_of(panel) + col - begin(panel);
  }
};

// Panels of about equal width, 512 at most, in multiples of `unit`, itself a
// multiple of kPanelAlignment; at least `min_count` of them where there are
// columns enough.
inline Panels MakePanels(int64_t rows, int64_t cols, int64_t unit,
                         int64_t min_count) {
  constexpr int64_t kMaxWidth = 512;
  const int64_t padded = RoundUp(cols, kPanelAlignment);
  const int64_t count =
      std::max(min_count, (padded + kMaxWidth - 1) / kMaxWidth);
  const int64_t width = RoundUp((padded + count - 1) / count, unit);
  return {rows, padded, std::min(padded, width)};
}

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_PANELS_H_
