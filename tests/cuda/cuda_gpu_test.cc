// The same of a GPU, where there is one. benchmarks/gpu runs these as well.
#include <algorithm>

#include <gtest/gtest.h>

#include "muonstore/cuda.h"
#include "tests/cuda/device_checks.h"
#include "tests/executor/step_run.h"

namespace muonstore {
namespace {

using testutil::BatchValues;
using testutil::ErrorAgainstOracle;
using testutil::ExpectNear;
using testutil::ManyShapes;
using testutil::OrthogonalizeOn;
using testutil::StateBytes;
using testutil::StepRun;

CudaOptions Options(CudaMode mode = CudaMode::kStream) {
  return {.mode = mode, .libraries = {.plugin = CUDA_PLUGIN_PATH}};
}

class CudaGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const CudaAnswer answer = ProbeCuda(Options());
    if (answer.state != CudaState::kReady) GTEST_SKIP() << answer.message;
  }
};

TEST_F(CudaGpuTest, AgreesWithTheFormula) {
  struct Case {
    NewtonSchulzOptions options;
    double largest_error = 0;
  };
  const std::vector<Case> cases = {
      {{}, 1e-4},
      {{.form = NewtonSchulzForm::kStandard}, 1e-4},
      {{.form = NewtonSchulzForm::kGram}, 2e-3},
      {{.precision = NewtonSchulzPrecision::kBF16}, 5e-2}};
  for (const Case& each : cases) {
    CudaOptions options = Options();
    options.newton_schulz = each.options;
    const auto device = MakeCudaDevice(options);
    for (const DeviceMatrices& matrices : ManyShapes()) {
      const std::vector<float> in = BatchValues(matrices, 3);
      EXPECT_LE(ErrorAgainstOracle(each.options, matrices, in,
                                   OrthogonalizeOn(*device, matrices, in)),
                each.largest_error)
          << matrices.rows << " x " << matrices.cols;
    }
  }
}

TEST_F(CudaGpuTest, RepeatsItsBits) {
  const DeviceMatrices matrices = {.batch = 3, .rows = 300, .cols = 700};
  const std::vector<float> in = BatchValues(matrices, 4);
  const auto device = MakeCudaDevice(Options());
  const std::vector<float> first = OrthogonalizeOn(*device, matrices, in);
  EXPECT_EQ(OrthogonalizeOn(*device, matrices, in), first);
}

TEST_F(CudaGpuTest, StepsLikeTheHost) {
  const StateBytes host = StepRun(MakeSingleCommunicator(), 2, {});
  const StateBytes stream = StepRun(MakeSingleCommunicator(), 2,
                                    {.device = MakeCudaDevice(Options())});
  ExpectNear(stream, host, 1e-3);
  for (const bool overlap : {false, true}) {
    EXPECT_EQ(
        StepRun(MakeSingleCommunicator(), 3,
                {.overlap = overlap, .device = MakeCudaDevice(Options())}),
        stream);
  }
  EXPECT_EQ(StepRun(MakeSingleCommunicator(), 2,
                    {.device = MakeCudaDevice(Options(CudaMode::kHost))}),
            host);
}

TEST_F(CudaGpuTest, KeepsItsLimit) {
  CudaOptions options = Options();
  options.max_device_bytes = uint64_t{8} << 20;
  const auto device = MakeCudaDevice(options);
  const DeviceMatrices matrices = {.batch = 8, .rows = 200, .cols = 300};
  const std::vector<float> in = BatchValues(matrices, 8);
  EXPECT_LE(ErrorAgainstOracle({}, matrices, in,
                               OrthogonalizeOn(*device, matrices, in)),
            1e-4);
  EXPECT_LE(device->usage().peak_bytes, options.max_device_bytes);
}

}  // namespace
}  // namespace muonstore
