#include "tools/common/exit_code.h"

namespace muonstore::tools {

ExitCode ExitCodeFor(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return ExitCode::kUsage;
    case ErrorCode::kNotFound:
    case ErrorCode::kUnavailable:
    case ErrorCode::kResourceExhausted:
      return ExitCode::kIo;
    case ErrorCode::kDataLoss:
    case ErrorCode::kUnsupported:
      return ExitCode::kUnreadable;
    case ErrorCode::kInternal:
      break;
  }
  return ExitCode::kInternal;
}

}  // namespace muonstore::tools
