// Ranks that die or hang around a step.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "muonstore/executor.h"
#include "tests/executor/delaying_device.h"
#include "tests/executor/step_model.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"

namespace muonstore {
namespace {

using ::testing::HasSubstr;
using testutil::AccumulateAll;
using testutil::MakeStepStore;
using testutil::RunConnectedRanks;
using testutil::StepOptionsOf;

TEST(StepFailureTest, ARankThatDiesBeforeTheStepLeavesTheOthersUntouched) {
  RunConnectedRanks(3,
                    [](const auto& communicator) {
                      const auto store =
                          MakeStepStore(communicator, {.stage = 3});
                      OffloadExecutor executor(*store, StepOptionsOf(*store));
                      AccumulateAll(*store, executor, 1);
                      if (communicator->rank() == 1) raise(SIGKILL);
                      const auto step = [&] { executor.Step(); };
                      EXPECT_EQ(CodeOf(step), ErrorCode::kUnavailable);
                      EXPECT_THAT(TextOf(step), HasSubstr("rank 1"));
                      EXPECT_FALSE(store->poisoned());
                      EXPECT_EQ(store->record().steps, 0);
                    },
                    {.killed = {1}});
}

TEST(StepFailureTest, ARankThatHangsIsAnErrorWithinTheTimeout) {
  const std::string rendezvous = testutil::UniqueRendezvous();
  testutil::RunRanks(
      3,
      [&](int32_t rank) {
        const std::shared_ptr<Communicator> communicator =
            ConnectSharedMemory({.rank = rank,
                                 .size = 3,
                                 .rendezvous = rendezvous,
                                 .timeout = std::chrono::seconds(2)});
        const auto store = MakeStepStore(communicator, {.stage = 3});
        OffloadExecutor executor(*store, StepOptionsOf(*store));
        AccumulateAll(*store, executor, 1);
        if (rank == 1) raise(SIGSTOP);
        const auto step = [&] { executor.Step(); };
        EXPECT_EQ(CodeOf(step), ErrorCode::kUnavailable);
        EXPECT_FALSE(store->poisoned());
        EXPECT_EQ(store->record().steps, 0);
      },
      {.killed = {1}});
}

// A device that kills its process in the middle of the step's commit.
class KillingDevice : public Device {
 public:
  std::string_view name() const override { return "host"; }
  bool works_in_host_memory() const override { return true; }
  void OrthogonalizeInPlace(std::span<const OrthogonalizeJob>) override {
    raise(SIGKILL);
  }
  std::unique_ptr<DeviceBuffer> Allocate(uint64_t) override { return nullptr; }
  PendingPtr CopyIn(DeviceBuffer&, std::span<const std::byte>) override {
    return nullptr;
  }
  PendingPtr Orthogonalize(DeviceBuffer&, const DeviceMatrices&) override {
    return nullptr;
  }
  PendingPtr CopyOut(std::span<std::byte>, const DeviceBuffer&) override {
    return nullptr;
  }
  void Drain() override {}
};

TEST(StepFailureTest, ARankThatDiesInTheCommitPoisonsTheOthers) {
  RunConnectedRanks(
      3,
      [](const auto& communicator) {
        const auto store = MakeStepStore(communicator, {.stage = 3});
        ExecutorOptions options = StepOptionsOf(*store);
        if (communicator->rank() == 2) {
          options.device = std::make_shared<KillingDevice>();
        }
        OffloadExecutor executor(*store, options);
        AccumulateAll(*store, executor, 1);
        const auto step = [&] { executor.Step(); };
        EXPECT_EQ(CodeOf(step), ErrorCode::kUnavailable);
        EXPECT_TRUE(store->poisoned());
        const auto read = [&] { store->Read("mlp.up.weight", "master"); };
        EXPECT_THAT(TextOf(read), HasSubstr("poisoned"));
      },
      {.killed = {2}});
}

}  // namespace
}  // namespace muonstore
