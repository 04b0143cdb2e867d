// What the tools' exit codes mean, and which error gives which.
#ifndef MUONSTORE_TOOLS_COMMON_EXIT_CODE_H_
#define MUONSTORE_TOOLS_COMMON_EXIT_CODE_H_

#include "muonstore/error.h"

namespace muonstore::tools {

// Do not renumber: scripts branch on these.
enum class ExitCode {
  kOk = 0,
  kFinding = 1,        // Different, flagged or faulty, as was asked.
  kUsage = 2,          // The command line makes no sense here.
  kIo = 3,             // Not found, not readable, out of space or memory.
  kUnreadable = 4,     // Damaged, unsupported, or a loss that was refused.
  kInternal = 70,      // A bug in the tool.
  kInterrupted = 130,  // SIGINT; other signals are 128 + their number.
};

ExitCode ExitCodeFor(ErrorCode code);

// The lines that every --help ends with.
inline constexpr const char* kExitCodeHelp =
    "Exit codes: 0 fine; 1 a finding; 2 usage; 3 input or output failed;\n"
    "4 input damaged or unsupported; 70 internal error; 128 + N: signal N "
    "(130: "
    "Ctrl-C).";

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_COMMON_EXIT_CODE_H_
