// Runs `stats` and `momentum`.
#ifndef MUONSTORE_TOOLS_CKPT_INSPECT_STATS_RUN_H_
#define MUONSTORE_TOOLS_CKPT_INSPECT_STATS_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/ckpt_inspect/command.h"
#include "tools/ckpt_inspect/select.h"

namespace muonstore::tools {

struct StatsFlags {
  SourceFlags source;
  Selection selection{.param = {}, .state = std::string(kMomentum)};
  // Without any of these: as the checkpoint records.
  bool whole = false;
  int64_t num_heads = 0;
  std::vector<int64_t> row_sizes;
  std::string other_path;  // Empty: no comparison.
  std::string other_tag;
  std::vector<std::string> fail_on;  // Names of flags.
  int64_t top = 3;                   // Singular values.
};

// `command` is the name that JSON output carries. kFinding where a matrix has
// a flag of fail_on, and where an old version never stored the momentum.
ExitCode RunStats(const StatsFlags& flags, const std::string& command,
                  Session& session);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_INSPECT_STATS_RUN_H_
