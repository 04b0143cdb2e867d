// Names for the kinds of state that an optimizer keeps per parameter.
//
// What: a kind is an open string: the well-known values below have a meaning
//   here, every other kind passes through untouched.
// Threads, failures: pure functions that do not fail.

#ifndef MUONSTORE_STATE_KIND_H_
#define MUONSTORE_STATE_KIND_H_

#include <compare>
#include <string>
#include <string_view>

namespace muonstore {

using StateKind = std::string;

inline constexpr std::string_view kMaster = "master";        // FP32 weight.
inline constexpr std::string_view kMomentum = "momentum";    // Muon.
inline constexpr std::string_view kExpAvg = "exp_avg";       // Adam, first.
inline constexpr std::string_view kExpAvgSq = "exp_avg_sq";  // Adam, second.
inline constexpr std::string_view kGradient = "gradient";    // Accumulated.
inline constexpr std::string_view kWeight = "weight";        // Compute weight.
inline constexpr std::string_view kBuffer = "buffer";        // Module buffer.

// Maps the names that other systems and command lines use to ours: "fp32" ->
// master, "momentum_buffer" -> momentum, "variance" -> exp_avg_sq. Any other
// name is returned as it is.
StateKind CanonicalStateKind(std::string_view name);

// Identifies one tensor of a checkpoint or store.
struct TensorKey {
  std::string parameter;
  StateKind kind;
  // NOLINTNEXTLINE(modernize-use-nullptr): it misreads the comparison with 0.
  friend auto operator<=>(const TensorKey&, const TensorKey&) = default;
  // "blocks.0.fc1.weight/momentum".
  std::string ToString() const { return parameter + "/" + kind; }
};

}  // namespace muonstore

#endif  // MUONSTORE_STATE_KIND_H_
