// Two checkpoints that must hold the same.
#ifndef MUONSTORE_TESTS_NATIVE_COMPARE_H_
#define MUONSTORE_TESTS_NATIVE_COMPARE_H_

#include "muonstore/checkpoint.h"

namespace muonstore::native {

// Every tensor of `expected` is in `actual` and no other one, with the same
// shape, dtype, group, missing elements and bits.
void ExpectSameTensors(const Checkpoint& expected, const Checkpoint& actual);

// What a conversion keeps of the description: groups, counters, names, step.
void ExpectSameRun(const CheckpointInfo& expected,
                   const CheckpointInfo& actual);

}  // namespace muonstore::native

#endif  // MUONSTORE_TESTS_NATIVE_COMPARE_H_
