// `--rows a:b` on a command line.
#ifndef MUONSTORE_TOOLS_CKPT_INSPECT_ROW_RANGE_H_
#define MUONSTORE_TOOLS_CKPT_INSPECT_ROW_RANGE_H_

#include <string>

#include "src/inspect/npy.h"

namespace muonstore::tools {

// Half-open, as in Python: either side may be left out, negative counts from
// the end. Rows that are not there are Error(kInvalidArgument), unlike in
// Python. Empty text is all rows.
RowRange ParseRows(const std::string& text, int64_t num_rows);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_INSPECT_ROW_RANGE_H_
