// The plug-in's device over the fake driver.
#include <cmath>
#include <limits>
#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/cuda.h"
#include "muonstore/error.h"
#include "tests/cuda/device_checks.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/fake_device.h"
#include "tests/tensor/error_of.h"

namespace muonstore {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testutil::BatchValues;
using testutil::ErrorAgainstOracle;
using testutil::FakeCudaOptions;
using testutil::ManyShapes;
using testutil::OrthogonalizeOn;

// Nothing is left, and nothing was done that no GPU forgives.
void ExpectClean() {
  const fake_cuda::Counts counts = fake_cuda::Look();
  EXPECT_THAT(counts.violations, IsEmpty());
  EXPECT_EQ(counts.live_objects, 0);
  EXPECT_EQ(counts.live_bytes, 0);
  EXPECT_EQ(counts.num_waiting, 0);
}

CudaState StateWith(const fake_cuda::Options& fake, CudaOptions options) {
  fake_cuda::Reset(fake);
  const CudaAnswer answer = ProbeCuda(options);
  // The same sentence comes out of MakeCudaDevice.
  fake_cuda::Reset(fake);
  const auto error = ErrorOf([&] { MakeCudaDevice(options); });
  EXPECT_EQ(error.has_value(), answer.state != CudaState::kReady);
  if (error.has_value()) {
    EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
    EXPECT_EQ(error->message(), answer.message);
    EXPECT_THAT(answer.message, testing::StartsWith("no CUDA device: "));
  }
  ExpectClean();
  return answer.state;
}

TEST(ProbeCuda, SaysWhatIsMissing) {
  CudaOptions options = FakeCudaOptions();
  EXPECT_EQ(StateWith({}, options), CudaState::kReady);
  options.libraries.plugin = "/nowhere/libmuonstore_cuda.so";
  EXPECT_EQ(StateWith({}, options), CudaState::kNoPlugin);
  // A library, but not ours.
  options.libraries.plugin = FAKE_CUDA_PATH;
  EXPECT_EQ(StateWith({}, options), CudaState::kNoPlugin);
  options = FakeCudaOptions();
  options.libraries.driver = "/nowhere/libcuda.so.1";
  EXPECT_EQ(StateWith({}, options), CudaState::kNoDriver);
  options.libraries.driver = CUDA_PLUGIN_PATH;  // Lacks every function.
  EXPECT_EQ(StateWith({}, options), CudaState::kNoDriver);
  options = FakeCudaOptions();
  options.libraries.runtime = "/nowhere/libcudart.so";
  EXPECT_EQ(StateWith({}, options), CudaState::kNoRuntime);
  options = FakeCudaOptions();
  options.libraries.blas = CUDA_PLUGIN_PATH;
  EXPECT_EQ(StateWith({}, options), CudaState::kNoRuntime);
  options = FakeCudaOptions();
  EXPECT_EQ(StateWith({.init_status = 999}, options), CudaState::kNoDriver);
  EXPECT_EQ(StateWith({.init_status = 100}, options), CudaState::kNoDevice);
  EXPECT_EQ(StateWith({.num_devices = 0}, options), CudaState::kNoDevice);
  options.device = 2;
  EXPECT_EQ(StateWith({.num_devices = 2}, options), CudaState::kNoDevice);
  options.device = -1;
  EXPECT_EQ(StateWith({.num_devices = 2}, options), CudaState::kNoDevice);
}

TEST(ProbeCuda, CountsDevices) {
  fake_cuda::Reset({.num_devices = 3});
  EXPECT_EQ(ProbeCuda(FakeCudaOptions()).num_devices, 3);
}

TEST(CudaDevice, CompilesKernelsWhereTheDriverRefusesBuiltOnes) {
  fake_cuda::Reset({.takes_built_kernels = false});
  EXPECT_EQ(MakeCudaDevice(FakeCudaOptions())->name(), "cuda:0");
  EXPECT_EQ(fake_cuda::Look().compilations, 1);
  fake_cuda::Reset({.compiles = false});
  EXPECT_THAT(TextOf([] { MakeCudaDevice(FakeCudaOptions()); }),
              HasSubstr("a fake log"));
  ExpectClean();
  fake_cuda::Reset({});
  CudaOptions options = FakeCudaOptions();
  options.libraries.nvrtc = "/nowhere/libnvrtc.so";
  EXPECT_THAT(TextOf([&] { MakeCudaDevice(options); }), HasSubstr("libnvrtc"));
  ExpectClean();
}

TEST(CudaDevice, RefusesOptionsThatMakeNoSense) {
  fake_cuda::Reset({});
  CudaOptions options = FakeCudaOptions();
  options.newton_schulz = {.form = NewtonSchulzForm::kGram,
                           .precision = NewtonSchulzPrecision::kBF16};
  EXPECT_EQ(CodeOf([&] { MakeCudaDevice(options); }),
            ErrorCode::kInvalidArgument);
}

struct Accuracy {
  NewtonSchulzOptions options;
  double largest_error = 0;

  friend void PrintTo(const Accuracy& accuracy, std::ostream* out) {
    *out << "errors up to " << accuracy.largest_error;
  }
};

class CudaAccuracyTest : public testing::TestWithParam<Accuracy> {};

TEST_P(CudaAccuracyTest, AgreesWithTheFormula) {
  for (const DeviceMatrices& matrices : ManyShapes()) {
    fake_cuda::Reset({});
    {
      CudaOptions options = FakeCudaOptions();
      options.newton_schulz = GetParam().options;
      const auto device = MakeCudaDevice(options);
      const std::vector<float> in = BatchValues(matrices, 3);
      const std::vector<float> out = OrthogonalizeOn(*device, matrices, in);
      EXPECT_LE(ErrorAgainstOracle(options.newton_schulz, matrices, in, out),
                GetParam().largest_error)
          << matrices.rows << " x " << matrices.cols;
      const bool rounds =
          GetParam().options.precision == NewtonSchulzPrecision::kBF16 &&
          std::min(matrices.rows, matrices.cols) >= 48;
      const fake_cuda::Counts counts = fake_cuda::Look();
      EXPECT_EQ(counts.bf16_products, rounds ? counts.products : 0);
    }
    ExpectClean();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Options, CudaAccuracyTest,
    testing::Values(
        Accuracy{{}, 2e-5},
        Accuracy{{.form = NewtonSchulzForm::kStandard}, 2e-5},
        Accuracy{{.form = NewtonSchulzForm::kGram}, 1e-3},
        Accuracy{{.coefficients = NewtonSchulzCoefficients::PolarExpress5(),
                  .form = NewtonSchulzForm::kStandard},
                 5e-5},
        Accuracy{{.normalization = NewtonSchulzNormalization::kCompat}, 2e-5},
        Accuracy{{.precision = NewtonSchulzPrecision::kBF16}, 4e-2}));

TEST(CudaDevice, ZerosGiveZerosAndTinyOnesCount) {
  fake_cuda::Reset({});
  const auto device = MakeCudaDevice(FakeCudaOptions());
  const DeviceMatrices matrices = {.batch = 3, .rows = 4, .cols = 6};
  std::vector<float> in = BatchValues(matrices, 1);
  for (size_t i = 0; i < 24; ++i) in[i] = 0;
  for (size_t i = 24; i < 48; ++i) in[i] *= 1e-30F;
  const std::vector<float> out = OrthogonalizeOn(*device, matrices, in);
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(out[i], 0) << i;
  const std::vector<float> rest_in(in.begin() + 24, in.end());
  const std::vector<float> rest_out(out.begin() + 24, out.end());
  EXPECT_LE(ErrorAgainstOracle({}, {.batch = 2, .rows = 4, .cols = 6}, rest_in,
                               rest_out),
            2e-5);
}

TEST(CudaDevice, NamesAMatrixThatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    fake_cuda::Reset({});
    {
      const auto device = MakeCudaDevice(FakeCudaOptions());
      const DeviceMatrices matrices = {.batch = 4, .rows = 4, .cols = 6};
      std::vector<float> in = BatchValues(matrices, 1);
      in[2 * 24 + 5] = bad;
      const auto error =
          ErrorOf([&] { OrthogonalizeOn(*device, matrices, in); });
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error->what(), HasSubstr("matrix 2 of a batch of 4"));
    }
    ExpectClean();
  }
}

TEST(CudaDevice, EmptyBatchesAreNoWork) {
  fake_cuda::Reset({});
  const auto device = MakeCudaDevice(FakeCudaOptions());
  const auto buffer = device->Allocate(64);
  device->Orthogonalize(*buffer, {.batch = 0, .rows = 4, .cols = 4})->Wait();
  device->Orthogonalize(*buffer, {.batch = 3, .rows = 0, .cols = 4})->Wait();
  device->CopyIn(*buffer, {})->Wait();
  EXPECT_EQ(fake_cuda::Look().products, 0);
}

TEST(CudaDevice, RefusesWhatIsLargerThanABuffer) {
  fake_cuda::Reset({});
  const auto device = MakeCudaDevice(FakeCudaOptions());
  const auto buffer = device->Allocate(16);
  std::vector<std::byte> bytes(17);
  EXPECT_EQ(CodeOf([&] { device->CopyIn(*buffer, bytes); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] { device->CopyOut(bytes, *buffer); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] {
              device->Orthogonalize(*buffer,
                                    {.batch = 1, .rows = 1, .cols = 5});
            }),
            ErrorCode::kInvalidArgument);
}

// A limit gives the same bits in parts.
TEST(CudaDevice, KeepsItsLimit) {
  const DeviceMatrices matrices = {.batch = 24, .rows = 10, .cols = 14};
  const std::vector<float> in = BatchValues(matrices, 9);
  fake_cuda::Reset({});
  const std::vector<float> whole =
      OrthogonalizeOn(*MakeCudaDevice(FakeCudaOptions()), matrices, in);
  const int64_t products = fake_cuda::Look().products;

  fake_cuda::Reset({});
  CudaOptions options = FakeCudaOptions();
  options.max_device_bytes = 48 << 10;
  {
    const auto device = MakeCudaDevice(options);
    EXPECT_EQ(OrthogonalizeOn(*device, matrices, in), whole);
    EXPECT_LE(device->usage().peak_bytes, options.max_device_bytes);
    EXPECT_EQ(static_cast<int64_t>(device->usage().peak_bytes),
              fake_cuda::Look().peak_bytes);
    EXPECT_GT(fake_cuda::Look().products, products);
    EXPECT_EQ(CodeOf([&] { device->Allocate(48 << 10); }),
              ErrorCode::kResourceExhausted);
  }
  ExpectClean();
}

TEST(CudaDevice, WorkspaceGrowsBetweenShapes) {
  fake_cuda::Reset({});
  {
    const auto device = MakeCudaDevice(FakeCudaOptions());
    for (const DeviceMatrices& matrices : ManyShapes()) {
      const std::vector<float> in = BatchValues(matrices, 5);
      EXPECT_LE(ErrorAgainstOracle({}, matrices, in,
                                   OrthogonalizeOn(*device, matrices, in)),
                2e-5);
    }
  }
  ExpectClean();
}

// Two batches at a time, whatever order the streams are worked off in.
TEST(CudaDevice, OrderOfStreamsDoesNotShow) {
  const DeviceMatrices matrices = {.batch = 2, .rows = 6, .cols = 8};
  std::vector<std::vector<float>> expected;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    fake_cuda::Reset({.seed = seed});
    {
      const auto device = MakeCudaDevice(FakeCudaOptions());
      std::vector<std::vector<float>> values;
      for (uint64_t i = 0; i < 6; ++i)
        values.push_back(BatchValues(matrices, i));
      const auto bytes = [&](size_t i) {
        return std::as_writable_bytes(std::span(values[i]));
      };
      std::vector<std::unique_ptr<IoMemory>> registered;
      for (size_t i = 0; i < values.size(); ++i) {
        registered.push_back(device->RegisterMemory(bytes(i)));
      }
      std::array<std::unique_ptr<DeviceBuffer>, 2> buffers = {
          device->Allocate(bytes(0).size()), device->Allocate(bytes(0).size())};
      std::vector<PendingPtr> all;
      for (size_t i = 0; i < values.size(); ++i) {
        DeviceBuffer& buffer = *buffers[i % 2];
        all.push_back(device->CopyIn(buffer, bytes(i)));
        all.push_back(device->Orthogonalize(buffer, matrices));
        all.push_back(device->CopyOut(bytes(i), buffer));
        EXPECT_FALSE(all.back()->done());
      }
      EXPECT_EQ(fake_cuda::Look().peak_busy_streams, 3);
      EXPECT_EQ(fake_cuda::Look().pageable_copies, 0);
      for (const PendingPtr& pending : all) pending->Wait();
      EXPECT_TRUE(all.front()->done());
      if (seed == 0) expected = values;
      EXPECT_EQ(values, expected) << seed;
    }
    ExpectClean();
  }
}

// Whoever waits late still hears of the own batch.
TEST(CudaDevice, ALaterBatchDoesNotHideAnEarlierOne) {
  fake_cuda::Reset({});
  const auto device = MakeCudaDevice(FakeCudaOptions());
  const DeviceMatrices matrices = {.batch = 1, .rows = 3, .cols = 5};
  std::vector<float> bad = BatchValues(matrices, 1);
  bad[7] = std::numeric_limits<float>::infinity();
  std::vector<float> good = BatchValues(matrices, 2);
  const auto buffer = device->Allocate(good.size() * sizeof(float));
  std::vector<PendingPtr> work;
  std::vector<std::unique_ptr<IoMemory>> registered;
  std::vector<PendingPtr> copies;
  for (std::vector<float>* values : {&bad, &good}) {
    const auto bytes = std::as_writable_bytes(std::span(*values));
    registered.push_back(device->RegisterMemory(bytes));
    copies.push_back(device->CopyIn(*buffer, bytes));
    work.push_back(device->Orthogonalize(*buffer, matrices));
  }
  work[1]->Wait();
  EXPECT_EQ(CodeOf([&] { work[0]->Wait(); }), ErrorCode::kInvalidArgument);
  // Again on each call.
  EXPECT_EQ(CodeOf([&] { work[0]->Wait(); }), ErrorCode::kInvalidArgument);
}

TEST(CudaDevice, AHandleThatGoesHasWaited) {
  fake_cuda::Reset({});
  const auto device = MakeCudaDevice(FakeCudaOptions());
  const DeviceMatrices matrices = {.batch = 1, .rows = 3, .cols = 3};
  std::vector<float> values = BatchValues(matrices, 1);
  const auto bytes = std::as_writable_bytes(std::span(values));
  const auto registered = device->RegisterMemory(bytes);
  const auto buffer = device->Allocate(bytes.size());
  device->CopyIn(*buffer, bytes);
  EXPECT_EQ(fake_cuda::Look().num_waiting, 0);
}

TEST(CheaperMode, IsTheOneThatTakesLess) {
  EXPECT_EQ(CheaperMode({.stream_s = 1, .host_s = 2}), CudaMode::kStream);
  EXPECT_EQ(CheaperMode({.stream_s = 2, .host_s = 1}), CudaMode::kHost);
  EXPECT_EQ(CheaperMode({.stream_s = 1, .host_s = 1}), CudaMode::kStream);
}

TEST(CudaDevice, AutomaticFollowsItsMeasurement) {
  fake_cuda::Reset({});
  {
    CudaOptions options = FakeCudaOptions(CudaMode::kAutomatic);
    options.max_device_bytes = 64 << 10;  // Keeps the measurement small.
    const auto device = MakeCudaDevice(options);
    EXPECT_GT(device->costs().stream_s, 0);
    EXPECT_GT(device->costs().host_s, 0);
    EXPECT_LT(device->costs().side, 1024);
    EXPECT_EQ(device->mode(), CheaperMode(device->costs()));
    EXPECT_EQ(device->works_in_host_memory(),
              device->mode() == CudaMode::kHost);
  }
  ExpectClean();
}

}  // namespace
}  // namespace muonstore
