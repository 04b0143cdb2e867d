// How `stats` shows its reports.
#ifndef MUONSTORE_TOOLS_CKPT_INSPECT_STATS_OUTPUT_H_
#define MUONSTORE_TOOLS_CKPT_INSPECT_STATS_OUTPUT_H_

#include <span>
#include <string>

#include "src/inspect/stats.h"
#include "tools/common/json.h"

namespace muonstore::tools {

// A row a matrix, and a line of totals. `compared`: with columns for the cosine
// and the ratio of the norms.
std::string StatsText(std::span<const MatrixReport> reports, bool compared);

// Appends "matrices" and "flagged" to an envelope.
void AddStatsJson(std::span<const MatrixReport> reports, Json& json);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_INSPECT_STATS_OUTPUT_H_
