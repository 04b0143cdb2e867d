// Stores on several ranks, for tests.

#ifndef MUONSTORE_TESTS_STORE_STORE_RANKS_H_
#define MUONSTORE_TESTS_STORE_STORE_RANKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "muonstore/communicator.h"
#include "muonstore/parameter.h"
#include "muonstore/partitioning.h"
#include "muonstore/store_options.h"
#include "tests/testutil/run_ranks.h"

namespace muonstore::testutil {

// Runs `rank_function` with a communicator over `num_ranks` processes (one rank
// runs in this process).
void RunConnectedRanks(
    int32_t num_ranks,
    const std::function<void(std::shared_ptr<Communicator>)>& rank_function,
    const RunRanksOptions& options = {});

// Two matrices, a stack of experts and a packed one in Muon group 0 (bf16), a
// vector and an embedding in Adam group 1 (f32), one frozen parameter.
std::vector<ParameterSpec> SmallModel();

// The model cut for `num_ranks` ranks, at stage 3 into small sub-groups.
Partitioning Cut(const std::vector<ParameterSpec>& model, int32_t stage,
                 int32_t num_ranks);

// A policy that keeps everything in one tier; what is smaller than
// `resident_below_bytes` in a host tier, if `tier` is not memory.
TierPolicy AllIn(std::shared_ptr<Tier> tier, uint64_t resident_below_bytes = 0);

// A different value for every element of every parameter: exact in f32.
std::vector<float> UniqueValues(const ParameterSpec& parameter, int32_t salt);

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_STORE_STORE_RANKS_H_
