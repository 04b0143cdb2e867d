// Every call of CUDA, and every piece of its work, fails once.
#include <functional>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/cuda.h"
#include "muonstore/error.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/fake_device.h"
#include "tests/executor/step_model.h"
#include "tests/executor/step_run.h"
#include "tests/tensor/error_of.h"

namespace muonstore {
namespace {

using testing::IsEmpty;
using testutil::AllState;
using testutil::FakeCudaOptions;
using testutil::MakeStepStore;
using testutil::StateBytes;
using testutil::StepOptionsOf;

// How far a run came before it threw.
struct Outcome {
  bool has_device = false;
  bool has_executor = false;
  std::optional<Error> error;
  bool poisoned = false;
  bool state_is_untouched = false;
};

std::vector<ParameterSpec> FewMatrices() {
  std::vector<ParameterSpec> model = testutil::ManyMatrices();
  model.resize(5);
  return model;
}

// Device, executor, a step; nothing of the device is left when it returns.
Outcome RunOnce(const fake_cuda::Options& fake) {
  fake_cuda::Reset(fake);
  Outcome outcome;
  const auto store = MakeStepStore(MakeSingleCommunicator(),
                                   {.stage = 2, .model = FewMatrices()});
  const StateBytes before = AllState(*store);
  outcome.error = ErrorOf([&] {
    CudaOptions cuda = FakeCudaOptions();
    cuda.max_device_bytes = 32 << 10;
    ExecutorOptions options = StepOptionsOf(*store);
    options.device = MakeCudaDevice(cuda);
    outcome.has_device = true;
    options.max_gather_bytes = 4 * 2 * 16 * 12 * 4;
    OffloadExecutor executor(*store, options);
    outcome.has_executor = true;
    testutil::AccumulateAll(*store, executor, 1);
    executor.Step();
  });
  outcome.poisoned = store->poisoned();
  outcome.state_is_untouched = !outcome.poisoned && AllState(*store) == before;
  return outcome;
}

void ExpectSound(const Outcome& outcome, const std::string& what) {
  const fake_cuda::Counts counts = fake_cuda::Look();
  EXPECT_THAT(counts.violations, IsEmpty()) << what;
  EXPECT_EQ(counts.live_objects, 0) << what;
  if (!outcome.error.has_value()) {
    // A step that worked all the same: the call gave something back, or asked
    // for what is of use only.
    EXPECT_FALSE(outcome.poisoned) << what;
    return;
  }
  EXPECT_TRUE(outcome.error->code() == ErrorCode::kUnavailable ||
              outcome.error->code() == ErrorCode::kResourceExhausted)
      << what << ": " << outcome.error->what();
  // Beyond the constructor the step has begun to write.
  EXPECT_EQ(outcome.poisoned, outcome.has_executor) << what;
  EXPECT_EQ(outcome.state_is_untouched, !outcome.has_executor) << what;
}

TEST(CudaFailure, OfAnyCallIsATypedErrorAndLeaksNothing) {
  const Outcome sound = RunOnce({});
  ASSERT_FALSE(sound.error.has_value()) << sound.error->what();
  const int64_t num_calls = fake_cuda::Look().calls;
  ASSERT_GT(num_calls, 100);
  int64_t num_errors = 0;
  for (int64_t i = 1; i <= num_calls; ++i) {
    const Outcome outcome = RunOnce({.fail_call = i});
    const std::string name = fake_cuda::Look().failed_call;
    ExpectSound(outcome, name + ", call " + std::to_string(i));
    num_errors += outcome.error.has_value() ? 1 : 0;
    if (outcome.error.has_value() && name == "cudaMalloc") {
      EXPECT_EQ(outcome.error->code(), ErrorCode::kResourceExhausted);
    }
  }
  EXPECT_GT(num_errors, num_calls / 2);
}

TEST(CudaFailure, OfAnyWorkPoisonsAndLeaksNothing) {
  ASSERT_FALSE(RunOnce({}).error.has_value());
  const int64_t num_work = fake_cuda::Look().work;
  ASSERT_GT(num_work, 50);
  for (int64_t i = 1; i <= num_work; ++i) {
    const Outcome outcome = RunOnce({.fail_work = i});
    ExpectSound(outcome, "work " + std::to_string(i));
    EXPECT_TRUE(outcome.error.has_value()) << i;
  }
}

}  // namespace
}  // namespace muonstore
