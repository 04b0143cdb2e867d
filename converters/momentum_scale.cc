#include "converters/momentum_scale.h"

#include <string>
#include <string_view>
#include <variant>

namespace muonstore {
namespace {

// Longer histories than any run has are not replayed.
constexpr int64_t kMaxIterations = 50'000'000;

std::optional<double> Number(const CheckpointInfo& info,
                             std::string_view name) {
  for (const auto& [key, value] : info.counters) {
    if (key != name) continue;
    if (const auto* number = std::get_if<double>(&value)) return *number;
    if (const auto* whole = std::get_if<int64_t>(&value)) {
      return static_cast<double>(*whole);
    }
  }
  return std::nullopt;
}

// DeepSpeed's DynamicLossScaler, as far as the file tells of it.
struct Scaler {
  double final_scale;
  double factor;
  int64_t window;
  int64_t num_iterations;
  int64_t last_overflow;  // -1: none.
  int64_t num_skipped;
  bool shifts_at_once;  // Without hysteresis.
  double min_scale;
};

std::optional<Scaler> ReadScaler(const CheckpointInfo& info) {
  const auto scale = Number(info, "loss_scale");
  const auto factor = Number(info, "loss_scaler.scale_factor");
  const auto window = Number(info, "loss_scaler.scale_window");
  const auto iterations = Number(info, "loss_scaler.cur_iter");
  const auto overflow = Number(info, "loss_scaler.last_overflow_iter");
  const auto skipped = Number(info, "skipped_steps");
  if (!scale || !factor || !window || !iterations || !overflow || !skipped ||
      !(*window >= 1) || !(*factor > 1) || !(*scale > 0) ||
      !(*iterations >= 0 && *iterations <= kMaxIterations) ||
      !(*overflow >= -1 && *overflow < *iterations) || !(*window < 9e15) ||
      !(*skipped >= 0 && *skipped < 9e15)) {
    return std::nullopt;
  }
  return Scaler{
      .final_scale = *scale,
      .factor = *factor,
      .window = static_cast<int64_t>(*window),
      .num_iterations = static_cast<int64_t>(*iterations),
      .last_overflow = static_cast<int64_t>(*overflow),
      .num_skipped = static_cast<int64_t>(*skipped),
      .shifts_at_once = Number(info, "loss_scaler.delayed_shift") == 1.0,
      .min_scale = Number(info, "loss_scaler.min_scale").value_or(0)};
}

// Walks from `first` on; scales are relative to the one it starts with.
std::optional<double> Replay(const Scaler& scaler, int64_t first,
                             bool overflows) {
  double scale = 1;
  std::optional<double> unit;
  // Before the first overflow the scaler counts from -1.
  int64_t last_overflow = overflows ? -1 : scaler.last_overflow;
  for (int64_t i = first; i < scaler.num_iterations; ++i) {
    if (overflows && i == scaler.last_overflow) {
      if (scaler.shifts_at_once) scale /= scaler.factor;
      last_overflow = i;
      continue;
    }
    if (unit && *unit != scale) return std::nullopt;
    unit = scale;
    const int64_t stable = i - last_overflow - 1;
    if (stable > 0 && stable % scaler.window == 0) scale *= scaler.factor;
  }
  return unit.value_or(scale) * (scaler.final_scale / scale);
}

}  // namespace

std::optional<double> ReplayMomentumScale(const CheckpointInfo& info) {
  const std::optional<Scaler> scaler = ReadScaler(info);
  if (!scaler) return std::nullopt;
  if (scaler->last_overflow < 0) {
    return scaler->num_skipped == 0 ? Replay(*scaler, 0, false) : std::nullopt;
  }
  // Skipped steps leave the momentum alone.
  if (scaler->num_skipped == scaler->last_overflow + 1) {
    return Replay(*scaler, scaler->last_overflow + 1, false);
  }
  const bool may_be_clamped = scaler->final_scale <= scaler->min_scale;
  if (scaler->num_skipped == 1 && !may_be_clamped) {
    return Replay(*scaler, 0, true);
  }
  return std::nullopt;
}

}  // namespace muonstore
