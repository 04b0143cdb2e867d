#include "tools/ckpt_convert/momentum_choice.h"

#include <charconv>
#include <optional>

#include "converters/momentum_scale.h"
#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/state/scalar_map.h"

namespace muonstore::tools {
namespace {

// With less, fp16 would keep nothing of a gradient of 1.
constexpr double kMinScale = 0x1p-24;

double ToScale(const std::string& text) {
  double scale = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), scale);
  if (error != std::errc() || end != text.data() + text.size() ||
      !(scale >= kMinScale) || !(scale < 1e30)) {
    throw Error(ErrorCode::kInvalidArgument,
                "--momentum-scale takes a loss scale such as 1024, or auto",
                {.expected = "2^-24 or more, below 1e30", .found = text});
  }
  return scale;
}

// Of momentum in units of a loss scale, as the counters tell it.
double ReplayedScale(const CheckpointInfo& source,
                     std::vector<std::string>& notes) {
  const auto scale = ReplayMomentumScale(source);
  if (!scale) {
    throw Error(ErrorCode::kUnsupported,
                "the loss scale changed while this momentum was summed up, or "
                "its counters leave that open: no one scale is right; "
                "--momentum-scale S assumes one",
                {.file = source.path});
  }
  notes.push_back(StrCat("assumed: the momentum is in units of the loss scale ",
                         *scale, ", by the loss scaler's counters"));
  return *scale;
}

// The one that the run which loads the target starts with.
double NextScale(const CheckpointInfo& source,
                 std::vector<std::string>& notes) {
  const auto* scale = FindScalar(source.counters, "loss_scale");
  if (scale == nullptr || !std::holds_alternative<double>(*scale) ||
      !(std::get<double>(*scale) > 0)) {
    throw Error(ErrorCode::kUnsupported,
                "--momentum-scale auto: the checkpoint names no loss scale "
                "that training goes on with; give the one that the run will "
                "start with as --momentum-scale S",
                {.file = source.path});
  }
  notes.push_back(StrCat("assumed: training goes on with the loss scale ",
                         std::get<double>(*scale),
                         ", which the source's loss scaler names"));
  return std::get<double>(*scale);
}

}  // namespace

double ChooseMomentumScale(const std::string& option,
                           const CheckpointInfo& source,
                           const TargetLayout& target,
                           std::vector<std::string>& notes) {
  if (option.empty()) return 0;
  if (source.precision != "fp16" || !source.momentum) {
    throw Error(ErrorCode::kInvalidArgument,
                "--momentum-scale is for fp16 momentum, which the source has "
                "not; leave it out",
                {.file = source.path, .found = source.precision});
  }
  const bool is_auto = option == "auto";
  const double given = is_auto ? 0 : ToScale(option);
  // Without offload fp16 momentum is in units of the loss scale.
  const bool from_scaled = source.momentum->unit == MomentumUnit::kLossScaled;
  if (from_scaled == (target.offload == "none")) {
    notes.emplace_back(
        "--momentum-scale changes nothing: the momentum keeps its unit");
    return 0;
  }
  if (!is_auto) return given;
  if (!from_scaled) return NextScale(source, notes);
  if (source.momentum->unit_scale) {
    notes.emplace_back(
        "--momentum-scale auto is not needed: the source proves the unit of "
        "its momentum");
    return 0;
  }
  return ReplayedScale(source, notes);
}

}  // namespace muonstore::tools
