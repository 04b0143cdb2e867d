// How `summary` shows a checkpoint.
#ifndef MUONSTORE_TOOLS_CKPT_INSPECT_SUMMARY_OUTPUT_H_
#define MUONSTORE_TOOLS_CKPT_INSPECT_SUMMARY_OUTPUT_H_

#include <string>

#include "muonstore/checkpoint.h"
#include "tools/common/json.h"

namespace muonstore::tools {

// `verbose` lists every tied and frozen name, counter and carried value.
std::string SummaryText(const Checkpoint& checkpoint, bool verbose);
Json SummaryJson(const Checkpoint& checkpoint);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_INSPECT_SUMMARY_OUTPUT_H_
