// The file names of a DeepSpeed tag directory.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_FILE_NAMES_H_
#define MUONSTORE_FORMATS_DEEPSPEED_FILE_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muonstore::deepspeed {

// [bf16_]zero_pp_rank_<R>_mp_rank_<MM>_optim_states.pt
struct OptimFileName {
  int32_t rank = 0;
  int32_t mp_rank = 0;
  bool bf16 = false;
};
std::optional<OptimFileName> ParseOptimFileName(std::string_view name);

// mp_rank_<MM>_model_states.pt (stages 0 to 2), or
// zero_pp_rank_<R>_mp_rank_<MM>_model_states.pt (stage 3).
struct ModelFileName {
  std::optional<int32_t> rank;  // Stage 3 only.
  int32_t mp_rank = 0;
};
std::optional<ModelFileName> ParseModelFileName(std::string_view name);

// The feature that a name stands for and that is not supported ("pipeline
// parallelism", "experts"); nullopt for any other name.
std::optional<std::string> UnsupportedFeatureOf(std::string_view name);

// The names that DeepSpeed gives, for messages about missing files.
std::string MakeOptimFileName(int32_t rank, bool bf16);
std::string MakeModelFileName(std::optional<int32_t> rank);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_FILE_NAMES_H_
