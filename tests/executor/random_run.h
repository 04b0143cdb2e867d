// Random models, rules and gradients, for the executor and for the oracle.
//
// What: a case follows from its seed alone: parameters of every layout in
//   several groups, hyper-parameters, clipping, micro-batches, a loss scale,
//   gradient dtypes and perhaps a step that overflows. How a run is cut over
//   ranks, threads and chunks is no part of it.

#ifndef MUONSTORE_TESTS_EXECUTOR_RANDOM_RUN_H_
#define MUONSTORE_TESTS_EXECUTOR_RANDOM_RUN_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muonstore/communicator.h"
#include "muonstore/executor.h"
#include "tests/oracle/step_oracle.h"

namespace muonstore::testutil {

struct RandomRun {
  std::vector<ParameterSpec> model;
  ExecutorOptions options;
  ClippingMode clipping = ClippingMode::kOff;
  MomentumConvention convention = MomentumConvention::kLerp;
  double loss_scale = 1;
  int64_t num_steps = 3;
  int64_t micro_batches = 1;
  int64_t overflow_step = -1;  // From 0; -1: none.
  // Of each parameter.
  std::vector<DType> gradient_dtypes;
  std::vector<oracle::MatrixRule> rules;
  std::vector<std::vector<float>> masters;
  // [step][micro-batch]; exact in their dtypes.
  std::vector<std::vector<oracle::MicroBatch>> gradients;
};

RandomRun MakeRandomRun(uint64_t seed);

// How a run is cut: what must not change any bit.
struct RunCut {
  int32_t stage = 2;
  int num_threads = 1;
  bool overlap = true;
  bool pinned_tier = false;
  // Gradients come in pieces of random sizes, in random order.
  bool in_chunks = false;
  // Gather buffers just large enough for the largest matrix.
  bool tight_gathers = false;
  int64_t sub_group_size = 1'000'000'000;
  // Where state is on NVMe; empty: in memory.
  std::string nvme_directory = {};
  // Segments of fewer bytes stay in memory.
  uint64_t resident_below_bytes = 0;
  SwapMode swap_mode = SwapMode::kPipelined;

  std::string ToString() const;
};

// What a run leaves: every tensor's bytes, "name/kind", and the reports.
struct RunResult {
  std::map<std::string, std::vector<std::byte>> state;
  std::vector<double> norms;
  std::vector<double> clip_factors;
  std::vector<bool> overflows;
  int64_t num_orthogonalized = 0;

  friend bool operator==(const RunResult&, const RunResult&) = default;
};

// Collective.
RunResult Execute(const RandomRun& run, const RunCut& cut,
                  std::shared_ptr<Communicator> communicator);

// The model after the same steps, in double.
struct OracleResult {
  std::vector<oracle::StepParameter> parameters;
  std::vector<oracle::StepResult> steps;
};
OracleResult ExecuteOracle(const RandomRun& run);

// Matrices of all Muon parameters.
int64_t NumMatrices(const RandomRun& run);

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_EXECUTOR_RANDOM_RUN_H_
