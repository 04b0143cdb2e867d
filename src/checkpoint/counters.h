// Counters that a saved store has beside its steps. Files hold these names: do
// not rename.

#ifndef MUONSTORE_SRC_CHECKPOINT_COUNTERS_H_
#define MUONSTORE_SRC_CHECKPOINT_COUNTERS_H_

#include <string_view>

namespace muonstore {

// A ClippingModeName.
inline constexpr std::string_view kClippingCounter = "clipping";
// Before the names of the caller's own values.
inline constexpr std::string_view kScalarPrefix = "client.";

}  // namespace muonstore

#endif  // MUONSTORE_SRC_CHECKPOINT_COUNTERS_H_
