// Runs of a few steps over a model of many small matrices.

#ifndef MUONSTORE_TESTS_EXECUTOR_STEP_RUN_H_
#define MUONSTORE_TESTS_EXECUTOR_STEP_RUN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "muonstore/executor.h"
#include "tests/executor/step_model.h"

namespace muonstore::testutil {

// Matrices of three shapes, wide and tall.
std::vector<ParameterSpec> ManyMatrices();

// All state after three steps. `options.groups` are StepOptionsOf's.
StateBytes StepRun(const std::shared_ptr<Communicator>& communicator,
                   int32_t stage, ExecutorOptions options);

// Of every f32 tensor: a relative difference of Frobenius norms. 16-bit ones
// follow from these.
void ExpectNear(const StateBytes& found, const StateBytes& expected,
                double tolerance);

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_EXECUTOR_STEP_RUN_H_
