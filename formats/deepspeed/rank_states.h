// One rank's `*_optim_states.pt` file of a DeepSpeed checkpoint.
//
// What: the flat buffers that the rank holds per flat group and state kind, the
//   param groups, paddings and the loss scaler. The layout is not derived here.
// Ownership: keeps its TorchFile.
// Threads: immutable after parsing.
// Failures: Error with the file: kDataLoss for a structure that DeepSpeed does
//   not write, kUnsupported for features by name.

#ifndef MUONSTORE_FORMATS_DEEPSPEED_RANK_STATES_H_
#define MUONSTORE_FORMATS_DEEPSPEED_RANK_STATES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/torchfile/torch_file.h"
#include "muonstore/checkpoint.h"

namespace muonstore::deepspeed {

// Which class of DeepSpeed wrote the file; each has its own structure.
enum class Writer {
  kZero12,  // DeepSpeedZeroOptimizer
  kBf16,    // BF16_Optimizer: stage 1 with FP32 gradient accumulation
  kZero3,   // DeepSpeedZeroOptimizer_Stage3
};
std::string_view WriterName(Writer writer);

// What only files of our writer have: {"without_momentum": [param group, ...]}.
inline constexpr std::string_view kOwnKey = "muonstore";
inline constexpr std::string_view kWithoutMomentum = "without_momentum";

// A flat buffer: a tensor of the file or, when it was swapped to NVMe, a raw
// FP32 file beside it.
struct FlatBuffer {
  uint32_t tensor = 0;        // Index into the file's value tree.
  DType dtype = DType::kF32;  // Of the elements where they lie.
  int64_t num_elements = 0;   // 0 for a swapped one.
  std::string swap_name;      // "<ds_id>" or "<state>-<ds_id>"; else empty.
};

struct FlatState {
  std::optional<FlatBuffer> master;
  // By kind; momentum_buffer is kMomentum.
  std::vector<std::pair<StateKind, FlatBuffer>> buffers;
  ScalarMap scalars;  // "step", ...

  const FlatBuffer* Find(std::string_view kind) const;
};

struct ParamGroupState {
  std::string name;              // Empty where the file has none.
  std::optional<bool> use_muon;  // Absent in runs without Muon.
  ScalarMap hyper_parameters;    // Without `params`, `name`, `use_muon`.
  std::vector<int64_t> flat_groups;
};

struct LossScale {
  double scale = 1;
  bool dynamic = false;
  ScalarMap counters;
};

// What param_slice_mappings claims: a parameter's place in the partition.
struct SliceClaim {
  std::string parameter;
  int64_t start = 0;
  int64_t num_elements = 0;
};

struct RankStates {
  std::shared_ptr<const torchfile::TorchFile> file;
  int32_t rank = 0;
  Writer writer = Writer::kZero12;
  int32_t stage = 0;
  bool elastic = false;  // base_optimizer_state is a list, without groups.
  std::string version;
  // Batch, optimizer, precision and ZeRO sections of ds_config, as text: equal
  // on all ranks of a run.
  std::string config;
  std::optional<int64_t> config_stage;  // The ZeRO stage that it names.
  std::vector<FlatState> flat;          // By flat group.
  std::vector<ParamGroupState> param_groups;
  std::vector<int64_t> partition_count;
  std::vector<int64_t> group_paddings;                   // Stages 1 and 2.
  std::vector<std::vector<int64_t>> alignment_paddings;  // By flat group.
  std::vector<std::vector<SliceClaim>> slice_claims;     // By flat group.
  std::optional<LossScale> loss_scale;
  // Param groups whose momentum the source of a conversion had not.
  std::vector<std::string> without_momentum;
};

RankStates ReadRankStates(std::shared_ptr<FileSystem> fs,
                          const std::string& path, int32_t rank);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_RANK_STATES_H_
