// The step with its matrices on the plug-in's device, over the fake driver.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/cuda.h"
#include "muonstore/error.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/fake_device.h"
#include "tests/executor/step_model.h"
#include "tests/executor/step_run.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"

namespace muonstore {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testutil::AllState;
using testutil::ExpectNear;
using testutil::FakeCudaOptions;
using testutil::MakeStepStore;
using testutil::ManyMatrices;
using testutil::RunConnectedRanks;
using testutil::StateBytes;
using testutil::StepOptionsOf;
using testutil::StepRun;

CudaOptions SmallFake(CudaMode mode = CudaMode::kStream) {
  CudaOptions options = FakeCudaOptions(mode);
  options.max_device_bytes = 64 << 10;
  return options;
}

StateBytes OnHost(int32_t stage) {
  return StepRun(MakeSingleCommunicator(), stage, {});
}

// Stage, ranks, overlap.
class CudaStepTest
    : public testing::TestWithParam<std::tuple<int32_t, int32_t, bool>> {};

TEST_P(CudaStepTest, StreamGivesTheSameBitsWhateverTheCut) {
  const auto [stage, num_ranks, overlap] = GetParam();
  fake_cuda::Reset({});
  const StateBytes reference = StepRun(MakeSingleCommunicator(), 2,
                                       {.device = MakeCudaDevice(SmallFake())});
  ExpectNear(reference, OnHost(2), 1e-4);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    RunConnectedRanks(num_ranks, [&, stage = stage,
                                  overlap = overlap](const auto& communicator) {
      fake_cuda::Reset({.seed = seed, .num_devices = 3});
      {
        CudaOptions options = SmallFake();
        options.device = communicator->rank();
        EXPECT_EQ(StepRun(communicator, stage,
                          {.overlap = overlap,
                           // Room for four buffers of two matrices.
                           .max_gather_bytes = 4 * 2 * 16 * 12 * 4,
                           .device = MakeCudaDevice(options)}),
                  reference);
      }
      const fake_cuda::Counts counts = fake_cuda::Look();
      EXPECT_THAT(counts.violations, IsEmpty());
      EXPECT_EQ(counts.live_objects, 0);
      EXPECT_EQ(counts.pageable_copies, 0);
      if (overlap && communicator->size() == 1) {
        EXPECT_GE(counts.peak_busy_streams, 2);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Cuts, CudaStepTest,
                         testing::Combine(testing::Values(2, 3),
                                          testing::Values(1, 2, 3),
                                          testing::Bool()));

TEST(CudaStep, HostModeGivesTheHostsBits) {
  fake_cuda::Reset({});
  {
    const auto device = MakeCudaDevice(SmallFake(CudaMode::kHost));
    EXPECT_EQ(device->mode(), CudaMode::kHost);
    EXPECT_EQ(StepRun(MakeSingleCommunicator(), 2, {.device = device}),
              OnHost(2));
    EXPECT_EQ(fake_cuda::Look().products, 0);
    EXPECT_EQ(device->usage().in_bytes, 0U);
  }
  EXPECT_EQ(fake_cuda::Look().live_objects, 0);
}

TEST(CudaStep, ReportsWhatWentOverTheBus) {
  fake_cuda::Reset({});
  const auto device = MakeCudaDevice(SmallFake());
  const auto store = MakeStepStore(MakeSingleCommunicator(),
                                   {.stage = 2, .model = ManyMatrices()});
  ExecutorOptions options = StepOptionsOf(*store);
  options.device = device;
  OffloadExecutor executor(*store, options);
  uint64_t matrix_bytes = 0;
  for (const ParameterSpec& parameter : store->parameters()) {
    matrix_bytes += 4 * static_cast<uint64_t>(parameter.shape.num_elements());
  }
  for (uint64_t step = 1; step <= 2; ++step) {
    testutil::AccumulateAll(*store, executor, step);
    const StepReport report = executor.Step();
    EXPECT_EQ(report.device_in_bytes, matrix_bytes);
    EXPECT_EQ(report.device_out_bytes, matrix_bytes);
    EXPECT_LE(report.peak_device_bytes, uint64_t{64} << 10);
    EXPECT_EQ(static_cast<int64_t>(report.peak_device_bytes),
              fake_cuda::Look().peak_bytes);
  }
}

// Copies from memory that nobody page-locked are staged by the runtime.
TEST(CudaStep, PageableBuffersGiveTheSameBits) {
  fake_cuda::Reset({});
  const StateBytes pinned = StepRun(MakeSingleCommunicator(), 2,
                                    {.device = MakeCudaDevice(SmallFake())});
  EXPECT_EQ(fake_cuda::Look().pageable_copies, 0);
  fake_cuda::Reset({});
  EXPECT_EQ(StepRun(MakeSingleCommunicator(), 2,
                    {.buffer_pinning = Pinning::kOff,
                     .device = MakeCudaDevice(SmallFake())}),
            pinned);
  EXPECT_GT(fake_cuda::Look().pageable_copies, 0);
}

TEST(CudaStep, AMatrixBeyondTheLimitIsAnErrorOfTheConstructor) {
  fake_cuda::Reset({});
  {
    std::vector<ParameterSpec> model = ManyMatrices();
    model.push_back({.name = "large", .shape = Shape({64, 90})});
    const auto store =
        MakeStepStore(MakeSingleCommunicator(), {.stage = 2, .model = model});
    ExecutorOptions options = StepOptionsOf(*store);
    options.device = MakeCudaDevice(SmallFake());
    const auto error =
        ErrorOf([&] { OffloadExecutor executor(*store, options); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kResourceExhausted);
    EXPECT_EQ(error->place().tensor, "large");
    EXPECT_THAT(error->message(), HasSubstr("max_device_bytes"));
    EXPECT_FALSE(store->poisoned());
    // One buffer is enough without overlap.
    CudaOptions roomy = FakeCudaOptions();
    roomy.max_device_bytes = 150 << 10;
    options.device = MakeCudaDevice(roomy);
    options.overlap = false;
    OffloadExecutor executor(*store, options);
    testutil::AccumulateAll(*store, executor, 1);
    executor.Step();
  }
  EXPECT_EQ(fake_cuda::Look().live_objects, 0);
  EXPECT_THAT(fake_cuda::Look().violations, IsEmpty());
}

TEST(CudaStep, RanksChooseTheModeTogether) {
  RunConnectedRanks(2, [](const auto& communicator) {
    fake_cuda::Reset({.num_devices = 2});
    CudaOptions options = SmallFake(CudaMode::kAutomatic);
    options.device = communicator->rank();
    options.communicator = communicator;
    const auto device = MakeCudaDevice(options);
    std::array<int64_t, 1> streams = {device->mode() == CudaMode::kStream};
    communicator->AllReduce(streams, ReduceOp::kSum);
    EXPECT_NE(streams[0], 1);
    EXPECT_EQ(device->mode(), CheaperMode(device->costs()));
  });
}

TEST(CudaStep, ARankWithoutADeviceIsEverybodysError) {
  RunConnectedRanks(2, [](const auto& communicator) {
    fake_cuda::Reset({.num_devices = 1});
    CudaOptions options = SmallFake(CudaMode::kAutomatic);
    options.device = communicator->rank();
    options.communicator = communicator;
    EXPECT_EQ(CodeOf([&] { MakeCudaDevice(options); }),
              ErrorCode::kUnavailable);
  });
}

}  // namespace
}  // namespace muonstore
