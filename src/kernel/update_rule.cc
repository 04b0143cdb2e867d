#include "muonstore/update_rule.h"

#include <algorithm>
#include <cmath>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {

double MuonScale(MuonScaleMode mode, int64_t rows, int64_t cols) {
  if (rows < 0 || cols < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "a matrix has a side of negative length",
                {.found = StrCat(rows, " x ", cols)});
  }
  const auto num_rows = static_cast<double>(rows);
  const auto num_cols = static_cast<double>(cols);
  if (mode == MuonScaleMode::kMatchRms) {
    return 0.2 * std::sqrt(std::max(num_rows, num_cols));
  }
  return rows > cols && cols > 0 ? std::sqrt(num_rows / num_cols) : 1.0;
}

}  // namespace muonstore
