#include "formats/deepspeed/momentum_unit.h"

#include "muonstore/error.h"
#include "src/base/str.h"

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

}  // namespace muonstore::deepspeed
