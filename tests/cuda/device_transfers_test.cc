// Gradients from, and weights to, device memory, over the fake driver.
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/cuda.h"
#include "muonstore/error.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/fake_device.h"
#include "tests/executor/step_model.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"

// The fake's own, which the caller of a real GPU has as well.
extern "C" {
int cudaMalloc(void** address, size_t size);
int cudaFree(void* address);
}

namespace muonstore {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testutil::AllState;
using testutil::FakeCudaOptions;
using testutil::MakeStepStore;
using testutil::RandomValues;
using testutil::RunConnectedRanks;
using testutil::StateBytes;
using testutil::StepOptionsOf;

// The caller's tensors on the GPU; the fake's device memory can be looked into.
class Tensors {
 public:
  std::byte* Add(size_t size_bytes) {
    void* memory = nullptr;
    cudaMalloc(&memory, size_bytes);
    all_.push_back(memory);
    return static_cast<std::byte*>(memory);
  }
  Tensors() = default;
  Tensors(const Tensors&) = delete;
  Tensors& operator=(const Tensors&) = delete;
  ~Tensors() {
    for (void* memory : all_) cudaFree(memory);
  }

 private:
  std::vector<void*> all_;
};

CudaOptions Fake(CudaMode mode) {
  CudaOptions options = FakeCudaOptions(mode);
  options.max_device_bytes = 256 << 10;
  return options;
}

StateBytes StateAfterStep(const std::shared_ptr<Communicator>& communicator,
                          const std::shared_ptr<CudaDevice>& device,
                          uint64_t staging_bytes) {
  const auto store = MakeStepStore(communicator, {.stage = 3});
  ExecutorOptions options = StepOptionsOf(*store);
  if (staging_bytes > 0) options.device = device;
  OffloadExecutor executor(*store, options);
  if (staging_bytes == 0) {
    testutil::AccumulateAll(*store, executor, 1);
  } else {
    Tensors tensors;
    std::vector<DeviceGradient> gradients;
    for (const ParameterSpec& parameter : store->parameters()) {
      if (parameter.optimizer == Optimizer::kNone) continue;
      const std::vector<float> values = RandomValues(parameter, 1);
      std::byte* memory = tensors.Add(values.size() * sizeof(float));
      std::memcpy(memory, values.data(), values.size() * sizeof(float));
      gradients.push_back(
          {.name = parameter.name,
           .dtype = DType::kF32,
           .data = memory,
           .num_elements = static_cast<int64_t>(values.size())});
    }
    DeviceTransfers(device, staging_bytes)
        .Accumulate(executor, gradients, nullptr);
  }
  executor.Step();
  return AllState(*store);
}

class DeviceTransfersTest : public testing::TestWithParam<uint64_t> {};

TEST_P(DeviceTransfersTest, BringGradientsAsTheyAre) {
  RunConnectedRanks(2, [&](const auto& communicator) {
    fake_cuda::Reset({.seed = GetParam()});
    {
      const auto device = MakeCudaDevice(Fake(CudaMode::kHost));
      const StateBytes expected = StateAfterStep(communicator, device, 0);
      EXPECT_EQ(StateAfterStep(communicator, device, GetParam()), expected);
    }
    const fake_cuda::Counts counts = fake_cuda::Look();
    EXPECT_THAT(counts.violations, IsEmpty());
    EXPECT_EQ(counts.live_objects, 0);
    EXPECT_EQ(counts.pageable_copies, 0);
  });
}

TEST_P(DeviceTransfersTest, BringWeightsAsTheyAre) {
  RunConnectedRanks(2, [&](const auto& communicator) {
    fake_cuda::Reset({.seed = GetParam()});
    {
      const auto device = MakeCudaDevice(Fake(CudaMode::kStream));
      const auto store = MakeStepStore(communicator, {.stage = 3});
      const StateBytes state = AllState(*store);
      Tensors tensors;
      std::vector<DeviceWeight> weights;
      uint64_t all_bytes = 0;
      for (const ParameterSpec& parameter : store->parameters()) {
        if (parameter.optimizer == Optimizer::kNone) continue;
        const size_t size = state.at(parameter.name + "/weight").size();
        weights.push_back({parameter.name, tensors.Add(size), size});
        all_bytes += size;
      }
      DeviceTransfers transfers(device, GetParam());
      transfers.SendWeights(*store, weights, nullptr);
      for (const DeviceWeight& weight : weights) {
        const auto* bytes = static_cast<const std::byte*>(weight.data);
        EXPECT_EQ(std::vector<std::byte>(bytes, bytes + weight.size_bytes),
                  state.at(weight.name + "/weight"));
      }
      // Each byte once.
      EXPECT_EQ(device->usage().in_bytes, all_bytes);
      weights.back().size_bytes += 1;
      EXPECT_THAT(
          TextOf([&] { transfers.SendWeights(*store, weights, nullptr); }),
          HasSubstr(weights.back().name));
    }
    EXPECT_THAT(fake_cuda::Look().violations, IsEmpty());
    EXPECT_EQ(fake_cuda::Look().live_objects, 0);
  });
}

INSTANTIATE_TEST_SUITE_P(StagingBytes, DeviceTransfersTest,
                         testing::Values(16, 48, 200, 1 << 20));

TEST(DeviceTransfers, NeedRoomForAnElement) {
  fake_cuda::Reset({});
  const auto device = MakeCudaDevice(Fake(CudaMode::kHost));
  EXPECT_EQ(CodeOf([&] { DeviceTransfers transfers(device, 15); }),
            ErrorCode::kInvalidArgument);
}

// What the executor refuses comes out, with nothing under way behind it.
TEST(DeviceTransfers, ARefusedGradientLeavesNothingUnderWay) {
  fake_cuda::Reset({});
  {
    const auto device = MakeCudaDevice(Fake(CudaMode::kHost));
    const auto store = MakeStepStore(MakeSingleCommunicator(), {});
    OffloadExecutor executor(*store, StepOptionsOf(*store));
    Tensors tensors;
    const std::vector<DeviceGradient> gradients = {{.name = "no such parameter",
                                                    .dtype = DType::kF32,
                                                    .data = tensors.Add(4000),
                                                    .num_elements = 1000}};
    DeviceTransfers transfers(device, 64);
    EXPECT_EQ(
        CodeOf([&] { transfers.Accumulate(executor, gradients, nullptr); }),
        ErrorCode::kNotFound);
    EXPECT_EQ(fake_cuda::Look().num_waiting, 0);
  }
  EXPECT_EQ(fake_cuda::Look().live_objects, 0);
}

}  // namespace
}  // namespace muonstore
