// Numbers as people read them.
//
// Threads, failures: pure functions that do not fail.

#ifndef MUONSTORE_TOOLS_COMMON_UNITS_H_
#define MUONSTORE_TOOLS_COMMON_UNITS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muonstore::tools {

std::string HumanBytes(uint64_t bytes);  // "323.4 KiB", "17 B".
// "5GB" (10^9), "256MiB" (2^20), "4096"; nullopt for anything else.
std::optional<uint64_t> ParseBytes(std::string_view text);
std::string HumanCount(int64_t count);  // "12,252".
// "1 file", "2 files".
std::string Counted(int64_t count, std::string_view one, std::string_view many);
std::string HumanAge(int64_t seconds);                 // "3 h", "2 days".
std::string ShortNumber(double value);                 // 4 digits: "0.01235".
std::string ShortNumber(std::optional<double> value);  // "-" for none.
std::string FloatText(double value);   // Shortest that reads back as a float.
std::string Percent(double fraction);  // "12.5 %".

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_COMMON_UNITS_H_
