// Checkpoints of random parameters in which every element is its own.
#ifndef MUONSTORE_TESTS_NATIVE_RANDOM_CHECKPOINT_H_
#define MUONSTORE_TESTS_NATIVE_RANDOM_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <random>

#include "muonstore/partitioning.h"
#include "tests/testutil/memory_checkpoint.h"

namespace muonstore::native {

// Muon and Adam groups, weights stored and derived, frozen parameters, buffers
// of many dtypes, scalars, empty tensors, state of another shape than its
// parameter's, lost elements, and names of any bytes.
std::unique_ptr<testutil::MemoryCheckpoint> RandomCheckpoint(
    std::mt19937& random);

// A stage, ranks, alignments and sub-group size.
ZeroRule RandomRule(std::mt19937& random);

// Two matrices, a vector, a frozen weight and a buffer: 5 tensors of state.
std::unique_ptr<testutil::MemoryCheckpoint> SmallCheckpoint(float scale = 1);

}  // namespace muonstore::native

#endif  // MUONSTORE_TESTS_NATIVE_RANDOM_CHECKPOINT_H_
