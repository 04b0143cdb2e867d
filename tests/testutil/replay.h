// Recorded optimizer steps that an executor has to reproduce.
//
// What: the files of the fixture family `replay` (tests/data/README.md): rules,
//   gradients and expected states of a float64 reference with a tolerance for
//   each tensor, and real steps of DeepSpeed.
// Ownership: plain values.
// Threads: one at a time (HDF5).
// Failures: std::runtime_error that names file and object.

#ifndef MUONSTORE_TESTS_TESTUTIL_REPLAY_H_
#define MUONSTORE_TESTS_TESTUTIL_REPLAY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace muonstore::testutil {

// A parameter of the step replays with its gradients by step.
struct ReplayParameter {
  std::string name;
  std::string kind;  // "mat", "qkv", "conv", "experts", "adam", "none".
  std::vector<int64_t> shape;
  std::vector<float> init;
  std::vector<std::vector<float>> gradients;
};

// In the order of the model. The same for all step replays.
std::vector<ReplayParameter> ReadReplayParameters();

// A gradient element that is not finite, at the overflow step.
struct OverflowSite {
  std::string parameter;
  std::vector<int64_t> index;
  float value = 0;
};

struct ExpectedTensor {
  std::vector<float> values;
  double tolerance = 0;         // Of any f32 executor.
  double strict_tolerance = 0;  // Unless it iterates Gram matrices in one go.
};
// By "<kind>/<parameter>", kinds "param", "momentum", "exp_avg", "exp_avg_sq".
using ExpectedState = std::map<std::string, ExpectedTensor>;

// The rules of one variant, its schedules and its states.
struct StepsReplay {
  std::string name;  // "clip-true".
  double momentum = 0.95;
  bool accumulates = false;  // M = mu M + G.
  bool nesterov = true;
  bool match_rms = false;
  bool polar_express = false;
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  std::string clip = "none";  // "none", "true", "deepspeed".
  double clip_norm = 0;
  std::string split;  // Of `qkv`: "", "per_head", "qkv_packed", ...
  int64_t num_heads = 1;
  int64_t micro_batches = 1;
  double loss_scale = 1;
  int64_t overflow_step = 0;  // From 1; 0: none.
  // The overflow is a step of its own before that one.
  bool overflow_is_extra = false;
  std::vector<OverflowSite> overflow_sites;
  std::vector<double> lr_muon;  // By step.
  std::vector<double> lr_adam;
  std::map<int64_t, ExpectedState> expected;  // By step, from 1.
};

// The variants that the largest fixture root has, by name.
std::vector<std::string> StepsReplayNames();
StepsReplay ReadStepsReplay(const std::string& name);

// Three steps of DeepSpeed from a checkpoint on.
struct DeepSpeedReplayStep {
  double lr_muon = 0;
  double lr_adam = 0;
  double loss_scale = 1;
  double norm = 0;  // As DeepSpeed reported it.
  // By parameter; averaged over ranks, times the loss scale.
  std::map<std::string, std::vector<float>> gradients;
  // By "<kind>/<parameter>" with DeepSpeed's kinds ("fp32", ...); strict is
  // DeepSpeed's own rounding. Empty where it was not recorded.
  ExpectedState after;
};
struct DeepSpeedReplay {
  std::string source_case;  // "s1-ws2-fp32-cpu-base".
  // f32 gradients, not those of a 16-bit all-reduce.
  bool f32_gradients = false;
  std::vector<DeepSpeedReplayStep> steps;
};

std::vector<std::string> DeepSpeedReplayNames();  // By source case.
DeepSpeedReplay ReadDeepSpeedReplay(const std::string& source_case);

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_TESTUTIL_REPLAY_H_
