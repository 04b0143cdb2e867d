// Ranks that die or hang around a step.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

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

// A device that does something else in the middle of the step's commit.
class FaultyDevice : public Device {
 public:
  explicit FaultyDevice(std::function<void()> fault)
      : fault_(std::move(fault)) {}
  std::string_view name() const override { return "host"; }
  bool works_in_host_memory() const override { return true; }
  void OrthogonalizeInPlace(std::span<const OrthogonalizeJob>) override {
    fault_();
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

 private:
  std::function<void()> fault_;
};

TEST(StepFailureTest, ARankThatDiesInTheCommitPoisonsTheOthers) {
  RunConnectedRanks(
      3,
      [](const auto& communicator) {
        const auto store = MakeStepStore(communicator, {.stage = 3});
        ExecutorOptions options = StepOptionsOf(*store);
        if (communicator->rank() == 2) {
          options.device =
              std::make_shared<FaultyDevice>([] { raise(SIGKILL); });
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

// The communicator's timeout is a minute: the test's is, too.
TEST(StepFailureTest, AFaultOfOneRankInTheCommitReachesTheOthersWithItsReason) {
  RunConnectedRanks(
      3,
      [](const auto& communicator) {
        const auto store = MakeStepStore(communicator, {.stage = 3});
        ExecutorOptions options = StepOptionsOf(*store);
        if (communicator->rank() == 2) {
          options.device = std::make_shared<FaultyDevice>([] {
            throw Error(ErrorCode::kUnavailable, "the device is on fire");
          });
        }
        OffloadExecutor executor(*store, options);
        AccumulateAll(*store, executor, 1);
        const auto step = [&] { executor.Step(); };
        EXPECT_THAT(TextOf(step), HasSubstr("the device is on fire"));
        EXPECT_TRUE(store->poisoned());
      },
      {.timeout = std::chrono::seconds(30)});
}

// Its last element on this rank.
void PutNaNInMomentum(StateStore& store, std::string_view name) {
  WriteLease lease = store.Write(name, StateKind(kMomentum));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const StatePiece<std::byte>& piece : lease.pieces()) {
    std::memcpy(piece.data.data() + piece.data.size() - sizeof(nan), &nan,
                sizeof(nan));
  }
  lease.Commit();
}

// Where one rank has the matrix, and where it is gathered.
TEST(StepFailureTest, AMomentumThatIsNotFiniteIsNamed) {
  for (const int32_t num_ranks : {1, 2}) {
    RunConnectedRanks(num_ranks, [](const auto& communicator) {
      const auto store = MakeStepStore(communicator, {.stage = 3});
      PutNaNInMomentum(*store, "mlp.up.weight");
      OffloadExecutor executor(*store, StepOptionsOf(*store));
      AccumulateAll(*store, executor, 1);
      const auto step = [&] { executor.Step(); };
      EXPECT_THAT(TextOf(step), HasSubstr("mlp.up.weight/momentum"));
      EXPECT_TRUE(store->poisoned());
    });
  }
}

TEST(StepFailureTest, ARankThatCannotBuildItsExecutorStopsAll) {
  RunConnectedRanks(2, [](const auto& communicator) {
    const auto store = MakeStepStore(communicator, {.stage = 3});
    ExecutorOptions options = StepOptionsOf(*store);
    if (communicator->rank() == 1) options.num_threads = 0;
    const auto build = [&] { OffloadExecutor executor(*store, options); };
    EXPECT_EQ(CodeOf(build), communicator->rank() == 1
                                 ? ErrorCode::kInvalidArgument
                                 : ErrorCode::kUnavailable);
    // Nothing is broken: with good options it works.
    options.num_threads = 1;
    OffloadExecutor executor(*store, options);
    AccumulateAll(*store, executor, 1);
    executor.Step();
    EXPECT_EQ(store->record().steps, 1);
  });
}

}  // namespace
}  // namespace muonstore
