// The model that the benchmarks of steps and saves share: layers of a small GPT
// and an embedding, with gradients that are cheap to make.

#ifndef MUONSTORE_BENCHMARKS_BENCH_MODEL_H_
#define MUONSTORE_BENCHMARKS_BENCH_MODEL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "muonstore/executor.h"
#include "muonstore/parameter.h"

namespace muonstore::bench {

struct ModelShape {
  int64_t layers = 4;
  int64_t width = 768;
  int64_t vocabulary = 8192;
};

std::vector<ParameterSpec> MakeModel(const ModelShape& shape);

// Finite values of full rank.
std::vector<float> RandomValues(const ParameterSpec& parameter, uint32_t seed);

// Gives the executor a gradient of every parameter.
void AccumulateAll(const std::vector<ParameterSpec>& model,
                   OffloadExecutor& executor);

// Of a group of Muon and one of Adam.
std::vector<GroupHyperParameters> Groups();

// Forks the ranks; each calls `run` and ends. Returns 0, or 1 where one failed.
int ForkRanks(int32_t num_ranks, const std::function<void(int32_t)>& run);

// One line of output, unmixed with that of other ranks.
void PrintLine(const std::string& text);

}  // namespace muonstore::bench

#endif  // MUONSTORE_BENCHMARKS_BENCH_MODEL_H_
