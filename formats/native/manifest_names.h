// Words in the manifest. Files hold them: do not rename.
#ifndef MUONSTORE_FORMATS_NATIVE_MANIFEST_NAMES_H_
#define MUONSTORE_FORMATS_NATIVE_MANIFEST_NAMES_H_

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "muonstore/checkpoint.h"
#include "muonstore/parameter.h"
#include "muonstore/partitioning.h"

namespace muonstore::native {

inline constexpr std::string_view kFormatName = "muonstore native checkpoint";
inline constexpr std::string_view kShortName = "native";
inline constexpr std::string_view kProducer = "muonstore";
// Written is the lowest that has all of what is to be said.
inline constexpr int64_t kFormatVersion = 3;
// The end of the text: the digest of all bytes before it.
inline constexpr std::string_view kDigestKey = "\"xxh3_64\":\"";
inline constexpr std::string_view kDigestEnd = "\"\n}\n";
inline constexpr size_t kDigestHexDigits = 16;

template <typename Enum, size_t N>
using Words = std::array<std::pair<Enum, std::string_view>, N>;

inline constexpr Words<Optimizer, 4> kOptimizerWords = {{
    {Optimizer::kNone, "none"},
    {Optimizer::kMuon, "muon"},
    {Optimizer::kAdam, "adam"},
    {Optimizer::kOther, "other"},
}};
inline constexpr Words<MomentumConvention, 2> kConventionWords = {{
    {MomentumConvention::kLerp, "lerp"},
    {MomentumConvention::kAccumulate, "accumulate"},
}};
inline constexpr Words<MomentumUnit, 2> kUnitWords = {{
    {MomentumUnit::kTrue, "true"},
    {MomentumUnit::kLossScaled, "loss_scaled"},
}};
inline constexpr Words<MuonOrder, 2> kOrderWords = {{
    {MuonOrder::kAsGiven, "as_given"},
    {MuonOrder::kSortedByShape, "sorted_by_shape"},
}};
inline constexpr Words<Finding::Severity, 3> kSeverityWords = {{
    {Finding::Severity::kNote, "note"},
    {Finding::Severity::kWarning, "warning"},
    {Finding::Severity::kFault, "fault"},
}};
inline constexpr Words<bool, 2> kCompressionWords = {{
    {false, "none"},
    {true, "shuffle+zstd"},
}};

template <typename Enum, size_t N>
std::string_view WordOf(const Words<Enum, N>& words, Enum value) {
  for (const auto& [key, word] : words) {
    if (key == value) {
      return word;
    }
  }
  return {};
}

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_MANIFEST_NAMES_H_
