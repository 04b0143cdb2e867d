#include "formats/deepspeed/momentum_unit.h"

#include <variant>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/state/scalar_map.h"

namespace muonstore::deepspeed {

double MomentumFactor(const CheckpointInfo& source,
                      const TargetLayout& target) {
  if (!source.momentum) {
    return 1;
  }
  const MomentumRecord& record = *source.momentum;
  const bool from_scaled = record.unit == MomentumUnit::kLossScaled;
  const bool to_scaled = target.precision == "fp16" && target.offload == "none";
  if (from_scaled == to_scaled) {
    return 1;
  }
  double scale = target.momentum_scale;
  if (scale == 0 && from_scaled) {
    scale = record.unit_scale.value_or(0);
  }
  if (scale > 0) {
    return from_scaled ? 1 / scale : scale;
  }
  const std::string in_file =
      record.scale_in_file ? StrCat(" (the file names ", *record.scale_in_file,
                                    ", which may have changed since)")
                           : "";
  throw Error(ErrorCode::kUnsupported,
              from_scaled
                  ? StrCat("the momentum is in units of a loss scale that the "
                           "checkpoint does not prove, and with offload "
                           "DeepSpeed wants true units: give the scale with "
                           "--momentum-scale S|auto",
                           in_file)
                  : StrCat("the momentum is in true units, and without "
                           "offload DeepSpeed wants units of the loss scale: "
                           "--momentum-scale auto takes the scale that the "
                           "source's loss scaler goes on with, "
                           "--momentum-scale S another one that the run will "
                           "start with, or --offload cpu keeps true units"),
              {.file = source.path});
}

double ConventionFactor(const CheckpointInfo& source, int32_t group) {
  if (!source.momentum ||
      source.momentum->convention == MomentumConvention::kLerp) {
    return 1;
  }
  const ParamGroup& owner = source.groups.at(static_cast<size_t>(group));
  if (owner.optimizer != Optimizer::kMuon) return 1;
  const Scalar* stored = FindScalar(owner.hyper_parameters, "momentum");
  const double* mu = stored == nullptr ? nullptr : std::get_if<double>(stored);
  if (mu == nullptr || !(*mu >= 0 && *mu < 1)) {
    throw Error(
        ErrorCode::kUnsupported,
        StrCat("the momentum accumulates, DeepSpeed's is multiplied by "
               "1 - momentum, and ",
               Printable(owner.name), " does not tell its momentum"),
        {.file = source.path,
         .expected = "a number from 0 to below 1",
         .found = stored == nullptr ? "nothing" : ScalarToString(*stored)});
  }
  return 1 - *mu;
}

}  // namespace muonstore::deepspeed
