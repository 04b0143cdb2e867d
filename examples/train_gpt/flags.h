// What a run of train_gpt is told on its command line.
#ifndef MUONSTORE_EXAMPLES_TRAIN_GPT_FLAGS_H_
#define MUONSTORE_EXAMPLES_TRAIN_GPT_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace train_gpt {

struct ModelFlags {
  int64_t num_layers = 3;
  int64_t dim = 96;
  int64_t num_heads = 4;
  int64_t context = 64;  // Bytes of text a sample.
  bool bf16 = false;     // Compute weights and gradients; masters stay f32.
};

// How the fused weight of queries, keys and values is seen as matrices.
enum class QkvLayout { kWhole, kPacked, kHeads };

// Of the store's executor; the baseline's is standard.
enum class NewtonSchulz { kAuto, kStandard, kGram };

// The steps of Newton-Schulz, of the store's executor and of the baseline.
enum class Coefficients { kJordan5, kPolarExpress5 };

struct OptimizerFlags {
  double muon_lr = 0.01;
  double adam_lr = 0.003;
  double momentum = 0.95;
  double weight_decay = 0.01;
  double max_norm = 1.0;  // 0: no clipping.
  bool nesterov = true;
  bool accumulate = false;  // M = mu M + G instead of the lerp.
  bool match_rms = false;   // Scale as Moonlight's instead of spectral.
  QkvLayout qkv = QkvLayout::kPacked;
  NewtonSchulz newton_schulz = NewtonSchulz::kAuto;
  Coefficients coefficients = Coefficients::kJordan5;
};

// kDefault: shared memory for several ranks, pinned memory for one.
enum class TierChoice { kDefault, kHost, kShared, kNvme };

struct TierFlags {
  TierChoice tier = TierChoice::kDefault;
  std::string nvme_directory;
  uint64_t memory_budget_bytes = 0;  // Of each rank; 0: none.
};

struct CheckpointFlags {
  int64_t save_every = 0;  // Steps; 0: never.
  std::string save_directory;
  int32_t keep = 0;  // The newest; 0: all.
  bool asynchronous = false;
  std::string resume;  // A root of checkpoints; empty: from the start.
};

struct Flags {
  ModelFlags model;
  OptimizerFlags optimizer;
  TierFlags tiers;
  CheckpointFlags checkpoints;
  int64_t num_steps = 100;
  int64_t batch = 12;  // Samples a step, over all ranks.
  uint64_t seed = 1;
  std::string text;  // Empty: the licences of a Debian system.
  std::string csv;   // Empty: none.
  int num_threads = 1;

  // Whole tensors in one process instead of the store.
  bool baseline = false;
  // Gradients as that many ranks would make them.
  int64_t baseline_split = 1;

  int32_t num_ranks = 1;
  int32_t stage = 2;
  // Of the process of one rank, which the launcher started.
  std::optional<int32_t> rank;
  std::string rendezvous;
  int launcher_pid = 0;
};

// Absent: help or an error was printed, and the program ends with `exit_code`.
std::optional<Flags> ParseFlags(int argc, char** argv, int& exit_code);

}  // namespace train_gpt

#endif  // MUONSTORE_EXAMPLES_TRAIN_GPT_FLAGS_H_
