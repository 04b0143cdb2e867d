// Steps over state that lies on a tier that is not memory.
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "muonstore/executor.h"
#include "src/store/snapshot.h"
#include "tests/executor/delaying_device.h"
#include "tests/executor/step_model.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/fault_tier.h"
#include "tests/testutil/run_ranks.h"

namespace muonstore {
namespace {

using ::testing::HasSubstr;
using testutil::AccumulateAll;
using testutil::AllState;
using testutil::FaultTier;
using testutil::MakeStepStore;
using testutil::RunConnectedRanks;
using testutil::StateBytes;
using testutil::StepOptionsOf;
using testutil::TierOperation;

// Segments of many pages whose matrices begin and end anywhere in them.
std::vector<ParameterSpec> PagedModel() {
  const auto muon = [](const char* name, Shape shape, MatrixLayout layout) {
    return ParameterSpec{.name = name,
                         .shape = std::move(shape),
                         .weight_dtype = DType::kBF16,
                         .layout = std::move(layout)};
  };
  const auto adam = [](const char* name, Shape shape) {
    return ParameterSpec{.name = name,
                         .shape = std::move(shape),
                         .weight_dtype = DType::kF16,
                         .group = 1,
                         .optimizer = Optimizer::kAdam};
  };
  return {adam("embed.weight", Shape({131, 23})),
          muon("qkv.weight", Shape({96, 37}),
               MatrixLayout::PackedRows({32, 32, 32})),
          muon("up.weight", Shape({61, 43}), MatrixLayout::Whole()),
          muon("down.weight", Shape({43, 61}), MatrixLayout::Whole()),
          muon("experts.weight", Shape({5, 19, 31}), MatrixLayout::Experts()),
          adam("norm.weight", Shape({1501}))};
}

enum class Placement {
  kAllSwapped,
  kMomentumResident,
  kGradientsResident,
  kOnlyMasters,
  kSmallResident,
};

TierPolicy PolicyOf(Placement placement, std::shared_ptr<Tier> tier) {
  const KindPolicy swapped{.tier = std::move(tier), .resident_below_bytes = 0};
  TierPolicy tiers{.rest = swapped};
  switch (placement) {
    case Placement::kAllSwapped:
      break;
    case Placement::kMomentumResident:
      tiers.kinds[StateKind(kMomentum)] = {};
      break;
    case Placement::kGradientsResident:
      tiers.kinds[StateKind(kGradient)] = {};
      tiers.kinds[StateKind(kWeight)] = {};
      break;
    case Placement::kOnlyMasters:
      tiers.rest = {};
      tiers.kinds[StateKind(kMaster)] = swapped;
      break;
    case Placement::kSmallResident:
      // Between the sizes of this model's groups, so that both are there.
      tiers.rest.resident_below_bytes = 12'000;
      break;
  }
  return tiers;
}

struct StepRun {
  int32_t stage = 2;
  TierPolicy tiers = {};
  ExecutorOptions options = {};
  ClippingMode clipping = ClippingMode::kGradients;
  uint64_t num_steps = 3;
};

StateBytes StateAfter(const std::shared_ptr<Communicator>& communicator,
                      StepRun run) {
  const auto store = MakeStepStore(
      communicator,
      {.stage = run.stage, .model = PagedModel(), .tiers = run.tiers});
  store->record().clipping = run.clipping;
  run.options.groups = StepOptionsOf(*store).groups;
  OffloadExecutor executor(*store, run.options);
  for (uint64_t step = 1; step <= run.num_steps; ++step) {
    // Two micro-batches, so that gradients are read back.
    AccumulateAll(*store, executor, 10 * step);
    AccumulateAll(*store, executor, 10 * step + 1);
    EXPECT_FALSE(executor.Step().overflow);
  }
  executor.Close();
  StateBytes state = AllState(*store);
  store->Close();
  return state;
}

class SwappedStepTest
    : public ::testing::TestWithParam<
          std::tuple<Placement, int32_t, int32_t, SwapMode, bool>> {};

TEST_P(SwappedStepTest, GivesTheBitsOfMemory) {
  const auto [placement, stage, num_ranks, mode, overlap] = GetParam();
  for (const ClippingMode clipping :
       {ClippingMode::kGradients, ClippingMode::kDeepSpeed}) {
    StepRun run{.options = {.max_norm = 0.5}, .clipping = clipping};
    const StateBytes reference = StateAfter(MakeSingleCommunicator(), run);
    run.stage = stage;
    run.options.num_threads = 2;
    run.options.overlap = overlap;
    run.options.swap_mode = mode;
    RunConnectedRanks(
        num_ranks, [&, placement = placement](const auto& communicator) {
          const auto tier = std::make_shared<FaultTier>(
              testutil::FaultTierOptions{.reorder = true, .seed = 7});
          run.tiers = PolicyOf(placement, tier);
          EXPECT_EQ(StateAfter(communicator, run), reference);
          EXPECT_EQ(tier->counts().races, 0);
          if (placement != Placement::kSmallResident) {
            EXPECT_GT(tier->counts().reads, 0);
          }
        });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cuts, SwappedStepTest,
    ::testing::Combine(
        ::testing::Values(Placement::kAllSwapped, Placement::kMomentumResident,
                          Placement::kGradientsResident,
                          Placement::kOnlyMasters, Placement::kSmallResident),
        ::testing::Values(1, 3), ::testing::Values(1, 2, 3),
        ::testing::Values(SwapMode::kPartitioned, SwapMode::kPipelined),
        ::testing::Bool()));

TEST(SwappedStepTest, AnAcceleratorStreamsFromTheTier) {
  const StateBytes reference = StateAfter(MakeSingleCommunicator(), {});
  for (const int32_t num_ranks : {1, 3}) {
    RunConnectedRanks(num_ranks, [&](const auto& communicator) {
      const auto tier = std::make_shared<FaultTier>(
          testutil::FaultTierOptions{.reorder = true, .seed = 3});
      const auto device = testutil::MakeDelayingDevice({}, {.seed = 5});
      EXPECT_EQ(StateAfter(communicator,
                           {.stage = 2,
                            .tiers = PolicyOf(Placement::kAllSwapped, tier),
                            .options = {.device = device}}),
                reference);
      EXPECT_EQ(device->num_waiting(), 0);
      EXPECT_EQ(tier->counts().races, 0);
    });
  }
}

TEST(SwappedStepTest, StagingBuffersStayWithinTheirLimit) {
  const StateBytes reference = StateAfter(MakeSingleCommunicator(), {});
  const auto tier = std::make_shared<FaultTier>();
  const auto store = MakeStepStore(
      MakeSingleCommunicator(),
      {.model = PagedModel(), .tiers = PolicyOf(Placement::kAllSwapped, tier)});
  ExecutorOptions options = StepOptionsOf(*store);
  // Three buffers of about the largest matrix: units are many.
  options.max_swap_bytes = 3 * 60'000;
  OffloadExecutor executor(*store, options);
  StepReport report;
  for (uint64_t step = 1; step <= 3; ++step) {
    AccumulateAll(*store, executor, 10 * step);
    AccumulateAll(*store, executor, 10 * step + 1);
    report = executor.Step();
  }
  EXPECT_GT(report.peak_swap_bytes, 0U);
  EXPECT_GT(report.swap_read_bytes, report.swap_written_bytes);
  EXPECT_GT(report.swap_written_bytes, 0U);
  EXPECT_LE(report.peak_swap_bytes, options.max_swap_bytes);
  EXPECT_EQ(AllState(*store), reference);
}

TEST(SwappedStepTest, AMatrixBeyondTheLimitIsAnErrorAtConstruction) {
  const auto tier = std::make_shared<FaultTier>();
  const auto store = MakeStepStore(
      MakeSingleCommunicator(),
      {.model = PagedModel(), .tiers = PolicyOf(Placement::kAllSwapped, tier)});
  ExecutorOptions options = StepOptionsOf(*store);
  options.max_swap_bytes = 8192;
  const auto build = [&] { OffloadExecutor executor(*store, options); };
  EXPECT_EQ(CodeOf(build), ErrorCode::kResourceExhausted);
  EXPECT_THAT(TextOf(build), HasSubstr(".weight"));
  EXPECT_THAT(TextOf(build), HasSubstr("max_swap_bytes"));
}

// Fails one operation of a step after the other. What fails before the decision
// changes nothing; what fails after it poisons the store.
TEST(SwappedStepTest, EveryFaultIsNoneOrPoison) {
  bool in_prepare = false;
  bool in_commit = false;
  for (int64_t n = 0;; ++n) {
    const auto tier = std::make_shared<FaultTier>();
    const auto store =
        MakeStepStore(MakeSingleCommunicator(),
                      {.model = PagedModel(),
                       .tiers = PolicyOf(Placement::kAllSwapped, tier)});
    const StateBytes before = AllState(*store);
    OffloadExecutor executor(*store, StepOptionsOf(*store));
    AccumulateAll(*store, executor, 1);
    std::atomic<int64_t> countdown = n;
    tier->FailWhere(
        [&](const TierOperation&) { return countdown.fetch_sub(1) == 0; });
    const auto step = [&] { executor.Step(); };
    if (CodeOf(step) != ErrorCode::kUnavailable) {
      EXPECT_LT(n, countdown.load() + 2 * n) << "no operation was left to fail";
      break;
    }
    tier->FailWhere(nullptr);
    if (store->poisoned()) {
      in_commit = true;
    } else {
      in_prepare = true;
      EXPECT_EQ(AllState(*store), before) << "operation " << n;
      EXPECT_EQ(store->record().steps, 0);
    }
  }
  EXPECT_TRUE(in_prepare);
  EXPECT_TRUE(in_commit);
}

TEST(SwappedStepTest, AFaultOfOneRankReachesAllWithItsReason) {
  RunConnectedRanks(3, [](const auto& communicator) {
    const auto tier = std::make_shared<FaultTier>();
    const auto store = MakeStepStore(
        communicator, {.stage = 3,
                       .model = PagedModel(),
                       .tiers = PolicyOf(Placement::kAllSwapped, tier)});
    OffloadExecutor executor(*store, StepOptionsOf(*store));
    AccumulateAll(*store, executor, 1);
    if (communicator->rank() == 1) {
      tier->FailWhere(
          [](const TierOperation& operation) { return operation.is_write; });
    }
    EXPECT_THAT(TextOf([&] { executor.Step(); }), HasSubstr("injected"));
    // A peer may hear of it before it began to write.
    EXPECT_TRUE(store->poisoned() || communicator->rank() != 1);
    EXPECT_EQ(store->record().steps, 0);
  });
}

// Steps go on while a snapshot is read: on any tier it keeps the bytes of its
// boundary, and the steps give the same bits.
TEST(SwappedStepTest, ASnapshotKeepsItsBytesWhileStepsGoOn) {
  const StateBytes reference =
      StateAfter(MakeSingleCommunicator(), {.num_steps = 3});
  for (const Placement placement :
       {Placement::kAllSwapped, Placement::kOnlyMasters}) {
    const auto tier = std::make_shared<FaultTier>();
    const auto store = MakeStepStore(
        MakeSingleCommunicator(),
        {.model = PagedModel(), .tiers = PolicyOf(placement, tier)});
    OffloadExecutor executor(*store, StepOptionsOf(*store));
    const auto step = [&](uint64_t number) {
      AccumulateAll(*store, executor, 10 * number);
      AccumulateAll(*store, executor, 10 * number + 1);
      executor.Step();
    };
    step(1);
    const auto bytes_of = [](const Snapshot& snapshot) {
      std::vector<std::vector<std::byte>> all;
      for (size_t i = 0; i < snapshot.segments().size(); ++i) {
        const SnapshotSegment& segment = snapshot.segments()[i];
        all.emplace_back(static_cast<size_t>(segment.num_elements) *
                         static_cast<size_t>(SizeBytes(segment.dtype)));
        snapshot.Read(i, 0, all.back())->Wait();
      }
      return all;
    };
    const auto snapshot = TakeSnapshot(store->impl(), {.concurrent = true});
    const auto boundary = bytes_of(*snapshot);
    step(2);
    step(3);
    EXPECT_EQ(bytes_of(*snapshot), boundary);
    EXPECT_EQ(AllState(*store), reference);
  }
}

// A save of state that has no second copy takes longer than ranks wait for each
// other: the step waits with all of them, and is no hang.
TEST(SwappedStepTest, AStepWaitsForASaveLongerThanPeersWait) {
  const std::string rendezvous = testutil::UniqueRendezvous();
  testutil::RunRanks(2, [&](int32_t rank) {
    const std::shared_ptr<Communicator> ranks =
        ConnectSharedMemory({.rank = rank,
                             .size = 2,
                             .rendezvous = rendezvous,
                             .timeout = std::chrono::seconds(2)});
    const auto store =
        MakeStepStore(ranks, {.model = PagedModel(), .max_snapshot_bytes = 1});
    OffloadExecutor executor(*store, StepOptionsOf(*store));
    auto snapshot = TakeSnapshot(store->impl(), {.concurrent = true});
    AccumulateAll(*store, executor, 1);
    std::thread saver([&] {
      // Rank 0's disk is slow.
      if (rank == 0) std::this_thread::sleep_for(std::chrono::seconds(5));
      snapshot.reset();
    });
    const StepReport report = executor.Step();
    if (rank == 0) {
      EXPECT_GT(report.snapshot_wait_s, 1);
    }
    saver.join();
    EXPECT_EQ(store->record().steps, 1);
    executor.Close();
    store->Close();
  });
}

}  // namespace
}  // namespace muonstore
