// What a DeepSpeed config says about the layout of its run's checkpoints.
//
// What: the settings that change where bytes lie, from a config file of the run
//   or from the config that a checkpoint carries. Absent, and "auto", is
//   nullopt.
// Ownership: plain values.
// Failures: Error(kInvalidArgument) for a file that is no JSON object or values
//   that make no sense in it.

#ifndef MUONSTORE_CONVERTERS_RUN_SETTINGS_H_
#define MUONSTORE_CONVERTERS_RUN_SETTINGS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "muonstore/checkpoint.h"
#include "muonstore/file_system.h"

namespace muonstore {

// The class that keeps bf16 runs with FP32 gradients.
inline constexpr const char* kBf16Optimizer = "BF16_Optimizer";

struct RunSettings {
  std::optional<int32_t> stage;
  std::optional<int32_t> num_ranks;
  std::optional<std::string> precision;  // "bf16", "fp16", "fp32".
  std::optional<std::string> offload;    // "none", "cpu", "nvme".
  std::optional<int64_t> sub_group_size;
  std::optional<bool> round_robin;
  std::optional<bool> parameter_alignment;
  // Gradients are accumulated in fp32: at stage 1 in bf16 without offload,
  // DeepSpeed's BF16_Optimizer writes the checkpoint.
  std::optional<bool> f32_gradients;
};

RunSettings ReadRunConfig(FileSystem& fs, const std::string& path);

// Of the run that saved the checkpoint, where it carries its config; its stage
// may be 0, at which BF16_Optimizer is possible, too.
RunSettings CarriedSettings(const Checkpoint& checkpoint);

// What `over` does not say, as in `base`.
RunSettings Merge(RunSettings over, const RunSettings& base);

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_RUN_SETTINGS_H_
