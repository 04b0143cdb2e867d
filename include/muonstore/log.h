// Where muonstore says what a user should know and no error is.
//
// What: few lines: limits that were met, choices that were made. They go to
//   standard error from level kWarning on; the environment variable
//   MUONSTORE_LOG (debug, info, warning, error, off) sets another level.
// Ownership: the handler is copied. The logger is the one piece of global
//   state of this library.
// Threads: any.
// Failures: none; what a handler throws is swallowed.

#ifndef MUONSTORE_LOG_H_
#define MUONSTORE_LOG_H_

#include <functional>
#include <string_view>

namespace muonstore {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

void SetLogLevel(LogLevel level);

// Gets every line of the level that is set, instead of standard error; an empty
// one brings standard error back.
using LogHandler = std::function<void(LogLevel level, std::string_view text)>;
void SetLogHandler(LogHandler handler);

}  // namespace muonstore

#endif  // MUONSTORE_LOG_H_
