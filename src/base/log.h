// Writing to muonstore/log.h's logger.

#ifndef MUONSTORE_SRC_BASE_LOG_H_
#define MUONSTORE_SRC_BASE_LOG_H_

#include <string_view>

#include "muonstore/log.h"

namespace muonstore {

void Log(LogLevel level, std::string_view text);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_BASE_LOG_H_
