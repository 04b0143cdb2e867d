// How `diff` shows its report.
#ifndef MUONSTORE_TOOLS_CKPT_INSPECT_DIFF_OUTPUT_H_
#define MUONSTORE_TOOLS_CKPT_INSPECT_DIFF_OUTPUT_H_

#include <string>

#include "src/inspect/diff.h"
#include "tools/common/json.h"

namespace muonstore::tools {

std::string DiffText(const CheckpointInfo& a, const CheckpointInfo& b,
                     const DiffReport& report);
Json DiffJson(const CheckpointInfo& a, const CheckpointInfo& b,
              const DiffReport& report);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_INSPECT_DIFF_OUTPUT_H_
