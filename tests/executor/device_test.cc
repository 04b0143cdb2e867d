// The pipeline over a device that works late and out of order.
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "muonstore/executor.h"
#include "tests/executor/delaying_device.h"
#include "tests/executor/step_model.h"
#include "tests/executor/step_run.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"

namespace muonstore {
namespace {

using testutil::AccumulateAll;
using testutil::MakeDelayingDevice;
using testutil::MakeStepStore;
using testutil::ManyMatrices;
using testutil::RunConnectedRanks;
using testutil::StateBytes;
using testutil::StepOptionsOf;
using testutil::StepRun;

class DelayingDeviceTest
    : public ::testing::TestWithParam<std::tuple<int32_t, int32_t, bool>> {};

TEST_P(DelayingDeviceTest, GivesTheHostsBits) {
  const auto [stage, num_ranks, overlap] = GetParam();
  const StateBytes reference = StepRun(MakeSingleCommunicator(), 2, {});
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    RunConnectedRanks(num_ranks, [&, stage = stage,
                                  overlap = overlap](const auto& communicator) {
      const auto device = MakeDelayingDevice({}, {.seed = seed});
      // Room for four buffers of two matrices.
      EXPECT_EQ(StepRun(communicator, stage,
                        {.overlap = overlap,
                         .max_gather_bytes = 4 * 2 * 16 * 12 * 4,
                         .device = device}),
                reference);
      EXPECT_EQ(device->num_waiting(), 0);
      if (overlap && communicator->size() < 3) {
        // Two batches were in flight.
        EXPECT_GT(device->counts().peak_waiting, 3);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Cuts, DelayingDeviceTest,
                         ::testing::Combine(::testing::Values(2, 3),
                                            ::testing::Values(1, 2, 3),
                                            ::testing::Bool()));

TEST(DelayingDeviceTest, EveryMatrixGoesThroughTheDeviceOnce) {
  const auto device = MakeDelayingDevice({}, {});
  const auto store = MakeStepStore(MakeSingleCommunicator(),
                                   {.stage = 2, .model = ManyMatrices()});
  ExecutorOptions options = StepOptionsOf(*store);
  options.device = device;
  OffloadExecutor executor(*store, options);
  AccumulateAll(*store, executor, 1);
  executor.Step();
  EXPECT_EQ(device->counts().orthogonalized, 24);
  EXPECT_EQ(device->counts().copies_in, device->counts().copies_out);
}

TEST(DelayingDeviceTest, AFailurePoisonsAndDrains) {
  for (int64_t fail_at = 1; fail_at <= 9; ++fail_at) {
    const auto device = MakeDelayingDevice({}, {.fail_at = fail_at});
    const auto store = MakeStepStore(MakeSingleCommunicator(),
                                     {.stage = 2, .model = ManyMatrices()});
    ExecutorOptions options = StepOptionsOf(*store);
    options.device = device;
    OffloadExecutor executor(*store, options);
    AccumulateAll(*store, executor, 1);
    EXPECT_EQ(CodeOf([&] { executor.Step(); }), ErrorCode::kUnavailable);
    EXPECT_TRUE(store->poisoned());
    EXPECT_EQ(device->num_waiting(), 0) << "fails at " << fail_at;
  }
}

}  // namespace
}  // namespace muonstore
