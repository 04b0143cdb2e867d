#include "src/store/snapshot.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "muonstore/store.h"
#include "src/store/store_impl.h"
#include "tests/store/fake_step.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/fault_tier.h"

namespace muonstore {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using testutil::AllIn;
using testutil::FakeStep;
using testutil::FaultTier;
using testutil::NumOtherThanStep;
using testutil::RunConnectedRanks;
using testutil::SmallModel;
using testutil::SnapshotBytes;
using testutil::StepBytes;
using testutil::TierOperation;
using testutil::UniqueValues;

constexpr SnapshotOptions kConcurrent = {.concurrent = true};

Partitioning Cut(const std::vector<ParameterSpec>& model) {
  return Partitioning::Build(
      model, {.stage = 3, .num_ranks = 1, .sub_group_size = 60});
}

std::string Text(const Snapshot& snapshot) {
  std::string text;
  for (const SnapshotSegment& segment : snapshot.segments()) {
    text += std::string(segment.kind) + std::to_string(segment.flat_group);
    text += " ";
  }
  return text;
}

// With true: all in a tier that is not memory.
class SnapshotTest : public ::testing::TestWithParam<bool> {
 protected:
  SnapshotTest() : SnapshotTest(0) {}
  explicit SnapshotTest(uint64_t max_snapshot_bytes)
      : model_(SmallModel()),
        tier_(std::make_shared<FaultTier>(
            testutil::FaultTierOptions{.reorder = true, .seed = 3})),
        store_(model_, Cut(model_),
               {.tiers = GetParam() ? AllIn(tier_) : TierPolicy{},
                .max_snapshot_bytes = max_snapshot_bytes}) {
    FakeStep(impl());
  }
  void TearDown() override { EXPECT_EQ(tier_->counts().races, 0); }

  StateStore::Impl& impl() { return store_.impl(); }

  std::vector<ParameterSpec> model_;
  std::shared_ptr<FaultTier> tier_;
  StateStore store_;
};

TEST_P(SnapshotTest, HoldsWhatACheckpointHolds) {
  for (const bool concurrent : {false, true}) {
    const auto snapshot = TakeSnapshot(impl(), {.concurrent = concurrent});
    EXPECT_EQ(NumOtherThanStep(*snapshot, 1), 0);
    EXPECT_EQ(snapshot->record().steps, 1);
    EXPECT_EQ(Text(*snapshot),
              "momentum0 momentum1 momentum2 "
              "master3 exp_avg3 exp_avg_sq3 master4 exp_avg4 exp_avg_sq4 "
              "master0 master1 master2 ");
  }
}

TEST_P(SnapshotTest, IsReadInAnyPartsAndWhereItIsMemory) {
  const auto snapshot = TakeSnapshot(impl(), {});
  for (size_t i = 0; i < snapshot->segments().size(); ++i) {
    const auto bytes = SnapshotBytes(*snapshot, i);
    EXPECT_EQ(SnapshotBytes(*snapshot, i, 7), bytes);
    const auto memory = snapshot->memory(i);
    EXPECT_EQ(std::vector<std::byte>(memory.begin(), memory.end()),
              GetParam() ? std::vector<std::byte>() : bytes);
  }
}

TEST_P(SnapshotTest, StepsGoOnWhileItLives) {
  const auto snapshot = TakeSnapshot(impl(), kConcurrent);
  for (int64_t step = 2; step <= 4; ++step) {
    FakeStep(impl());
    EXPECT_EQ(NumOtherThanStep(*snapshot, 1), 0);
    EXPECT_EQ(NumOtherThanStep(impl(), step), 0);
  }
  EXPECT_EQ(snapshot->record().steps, 1);
  EXPECT_EQ(snapshot->waited_s(), 0);
}

TEST_P(SnapshotTest, SeveralInARowHaveTheirOwnSteps) {
  for (int64_t step = 1; step <= 6; ++step) {
    const auto snapshot = TakeSnapshot(impl(), kConcurrent);
    FakeStep(impl());
    if (step % 2 == 0) snapshot->Release(2);
    FakeStep(impl());
    const size_t released = step % 2 == 0 ? 2 : snapshot->segments().size();
    for (size_t i = 0; i < snapshot->segments().size(); ++i) {
      if (i == released) continue;
      const SnapshotSegment& segment = snapshot->segments()[i];
      const auto bytes = SnapshotBytes(*snapshot, i);
      EXPECT_EQ(bytes, StepBytes(segment.kind, segment.flat_group, 2 * step - 1,
                                 bytes.size()));
    }
  }
  EXPECT_EQ(NumOtherThanStep(impl(), 13), 0);
}

TEST_P(SnapshotTest, TwoAtATimeAreBothRight) {
  const auto first = TakeSnapshot(impl(), kConcurrent);
  FakeStep(impl());
  const auto second = TakeSnapshot(impl(), kConcurrent);
  EXPECT_EQ(NumOtherThanStep(*first, 1), 0);
  EXPECT_EQ(NumOtherThanStep(*second, 2), 0);
}

TEST_P(SnapshotTest, LeasesLeaveItAsItIs) {
  const auto snapshot = TakeSnapshot(impl(), kConcurrent);
  for (const char* name : {"mlp.up.weight", "mlp.down.weight"}) {
    const auto& spec = model_[static_cast<size_t>(store_.FindParameter(name))];
    store_.Set(name, "momentum", UniqueValues(spec, 1));
    WriteLease lease = store_.Write(name, "master");
    lease.pieces().at(0).data[0] ^= std::byte{255};
    lease.Commit();
  }
  EXPECT_EQ(NumOtherThanStep(*snapshot, 1), 0);
  const GatheredTensor now = store_.Gather("mlp.up.weight", "momentum");
  EXPECT_EQ(std::vector<float>(now.f32().begin(), now.f32().end()),
            UniqueValues(model_[2], 1));
}

TEST_P(SnapshotTest, AReaderKeepsItsBytesWhileOthersCommit) {
  const ReadLease reader = store_.Read("mlp.down.weight", "momentum");
  const auto bytes = [&] {
    const auto piece = reader.pieces().at(0);
    return std::vector<std::byte>(piece.data.begin(), piece.data.end());
  };
  const std::vector<std::byte> before = bytes();
  // Both tensors lie in one segment; each round moves it to another slot.
  for (int32_t round = 0; round < 4; ++round) {
    const auto snapshot = TakeSnapshot(impl(), kConcurrent);
    std::thread saver([&] {
      for (size_t i = 0; i < snapshot->segments().size(); ++i) {
        snapshot->Release(i);
      }
    });
    store_.Set("mlp.up.weight", "momentum", UniqueValues(model_[2], round));
    saver.join();
    EXPECT_EQ(bytes(), before);
  }
}

TEST_P(SnapshotTest, WeightsThatALeaseWroteAreSaved) {
  store_.Set("mlp.up.weight", "weight", UniqueValues(model_[2], 1));
  {
    const auto snapshot = TakeSnapshot(impl(), kConcurrent);
    // Nothing is spared for them: a step would wait, and they come first.
    EXPECT_THAT(Text(*snapshot), StartsWith("weight1 "));
    const auto at = std::ranges::find(snapshot->segments(), kWeight,
                                      &SnapshotSegment::kind);
    EXPECT_EQ(at->dtype, DType::kBF16);
    snapshot->Release(static_cast<size_t>(at - snapshot->segments().begin()));
    FakeStep(impl());
  }
  // The step made them the rounded masters.
  EXPECT_THAT(Text(*TakeSnapshot(impl(), {})),
              ::testing::Not(HasSubstr("weight")));
}

TEST_P(SnapshotTest, AReleasedSegmentIsOver) {
  const auto snapshot = TakeSnapshot(impl(), kConcurrent);
  snapshot->Release(1);
  snapshot->Release(1);
  std::vector<std::byte> out(4);
  EXPECT_EQ(CodeOf([&] { snapshot->Read(1, 0, out); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] { static_cast<void>(snapshot->memory(1)); }),
            ErrorCode::kInvalidArgument);
  snapshot->Read(2, 0, out)->Wait();
}

TEST_P(SnapshotTest, ADroppedOneLetsGoOfAll) {
  TakeSnapshot(impl(), kConcurrent).reset();
  for (const SegmentId& id :
       StepOrder(impl().parameters, impl().partitioning)) {
    EXPECT_EQ(impl().segments->updates_before_wait(id.kind, id.flat_group), 2);
  }
  store_.Close();
}

TEST_P(SnapshotTest, WithoutConcurrencyWritersAreRefused) {
  {
    const ReadLease reader = store_.Read("norm.weight", "master");
    const auto snapshot = TakeSnapshot(impl(), {});
    EXPECT_THAT(TextOf([&] { store_.Write("norm.weight", "exp_avg"); }),
                HasSubstr("a save is under way"));
    store_.Read("norm.weight", "exp_avg");
  }
  {
    const auto snapshot = TakeSnapshot(impl(), {});
    EXPECT_EQ(CodeOf([&] { FakeStep(impl()); }), ErrorCode::kInvalidArgument);
  }
  FakeStep(impl());
  WriteLease writer = store_.Write("norm.weight", "master");
  EXPECT_THAT(TextOf([&] { TakeSnapshot(impl(), {}); }),
              HasSubstr("norm.weight/master"));
  const auto snapshot = TakeSnapshot(impl(), kConcurrent);
  writer.Commit();
  EXPECT_EQ(NumOtherThanStep(*snapshot, 2), 0);
}

TEST_P(SnapshotTest, NoneIsTakenDuringAStep) {
  const LeaseTable::Exclusive step(impl().leases, "the test");
  for (const bool concurrent : {false, true}) {
    const auto take = [&] { TakeSnapshot(impl(), {.concurrent = concurrent}); };
    EXPECT_EQ(CodeOf(take), ErrorCode::kInvalidArgument);
    EXPECT_THAT(TextOf(take), HasSubstr("a step is running"));
  }
}

TEST_P(SnapshotTest, CloseNamesTheOneThatLives) {
  FakeStep(impl());
  auto snapshot = TakeSnapshot(impl(), kConcurrent);
  const auto close = [&] { store_.Close(); };
  EXPECT_EQ(CodeOf(close), ErrorCode::kInvalidArgument);
  EXPECT_THAT(TextOf(close), HasSubstr("snapshot of step 2"));
  EXPECT_EQ(NumOtherThanStep(*snapshot, 2), 0);
  snapshot.reset();
  store_.Close();
  EXPECT_EQ(CodeOf([&] { TakeSnapshot(impl(), kConcurrent); }),
            ErrorCode::kUnavailable);
}

TEST_P(SnapshotTest, APoisonedStoreRefuses) {
  const auto snapshot = TakeSnapshot(impl(), kConcurrent);
  store_.Poison("the disk failed");
  for (const bool concurrent : {false, true}) {
    const auto take = [&] { TakeSnapshot(impl(), {.concurrent = concurrent}); };
    EXPECT_EQ(CodeOf(take), ErrorCode::kUnavailable);
    EXPECT_THAT(TextOf(take), HasSubstr("the disk failed"));
  }
  // What was taken before is as it was.
  EXPECT_EQ(NumOtherThanStep(*snapshot, 1), 0);
}

INSTANTIATE_TEST_SUITE_P(Tiers, SnapshotTest, ::testing::Bool(),
                         [](const auto& test) {
                           return test.param ? "NotMemory" : "Host";
                         });

// The second momentum has a spare slot, and nothing else.
class SnapshotCapTest : public ::testing::Test {
 protected:
  SnapshotCapTest()
      : model_(SmallModel()),
        store_(model_, Cut(model_), {.max_snapshot_bytes = uint64_t{117} * 4}) {
    FakeStep(store_.impl());
  }

  std::vector<ParameterSpec> model_;
  StateStore store_;
};

TEST_F(SnapshotCapTest, WhatAStepWaitsForComesFirst) {
  const auto snapshot = TakeSnapshot(store_.impl(), kConcurrent);
  EXPECT_EQ(Text(*snapshot),
            "momentum0 momentum2 "
            "master3 exp_avg3 exp_avg_sq3 master4 exp_avg4 exp_avg_sq4 "
            "master0 master1 master2 momentum1 ");
}

// Begins when somebody waits; the result is the number of wrong segments.
int32_t SaveLate(Snapshot& snapshot, int64_t step) {
  while (snapshot.waited_s() == 0) std::this_thread::yield();
  int32_t num_wrong = 0;
  for (size_t i = 0; i < snapshot.segments().size(); ++i) {
    const SnapshotSegment& segment = snapshot.segments()[i];
    const auto bytes = SnapshotBytes(snapshot, i);
    const auto right =
        StepBytes(segment.kind, segment.flat_group, step, bytes.size());
    num_wrong += bytes == right ? 0 : 1;
    snapshot.Release(i);
  }
  return num_wrong;
}

TEST_F(SnapshotCapTest, AStepWaitsForTheSaver) {
  for (int64_t step = 1; step <= 3; ++step) {
    const auto snapshot = TakeSnapshot(store_.impl(), kConcurrent);
    int32_t num_wrong = 0;
    std::thread saver([&] { num_wrong = SaveLate(*snapshot, step); });
    FakeStep(store_.impl());
    saver.join();
    EXPECT_EQ(num_wrong, 0);
    EXPECT_EQ(NumOtherThanStep(store_.impl(), step + 1), 0);
    EXPECT_GT(snapshot->waited_s(), 0);
  }
}

TEST_F(SnapshotCapTest, ALeaseWaitsForTheSaver) {
  const auto snapshot = TakeSnapshot(store_.impl(), kConcurrent);
  std::thread saver([&] {
    while (snapshot->waited_s() == 0) std::this_thread::yield();
    snapshot->Release(2);
  });
  ASSERT_EQ(snapshot->segments()[2].kind, kMaster);
  const auto bytes = SnapshotBytes(*snapshot, 2);
  EXPECT_EQ(bytes, StepBytes(kMaster, 3, 1, bytes.size()));
  store_.Set("embed.weight", "master", UniqueValues(model_[0], 1));
  saver.join();
}

TEST_F(SnapshotCapTest, ASaveThatFailsLetsTheStepGoOn) {
  auto snapshot = TakeSnapshot(store_.impl(), kConcurrent);
  std::thread saver([&] {
    while (snapshot->waited_s() == 0) std::this_thread::yield();
    snapshot.reset();
  });
  FakeStep(store_.impl());
  saver.join();
  EXPECT_EQ(NumOtherThanStep(store_.impl(), 2), 0);
}

TEST(SnapshotMemoryTest, CanBeReservedWhenTheStoreIsBuilt) {
  const auto model = SmallModel();
  StateStore store(model, Cut(model), {.reserve_snapshot_memory = true});
  const size_t num_arenas = store.impl().segments->arenas().size();
  EXPECT_EQ(num_arenas, 6U + 4U);
  FakeStep(store.impl());
  const auto snapshot = TakeSnapshot(store.impl(), kConcurrent);
  EXPECT_EQ(store.impl().segments->arenas().size(), num_arenas);
  FakeStep(store.impl());
  EXPECT_EQ(NumOtherThanStep(*snapshot, 1), 0);
  EXPECT_EQ(NumOtherThanStep(store.impl(), 2), 0);
}

TEST(SnapshotFilesTest, AFailedReadHarmsNothingElse) {
  const auto tier = std::make_shared<FaultTier>();
  const auto model = SmallModel();
  StateStore store(model, Cut(model), {.tiers = AllIn(tier)});
  FakeStep(store.impl());
  const auto snapshot = TakeSnapshot(store.impl(), kConcurrent);
  tier->FailWhere([](const TierOperation& what) { return !what.is_write; });
  EXPECT_EQ(CodeOf([&] { SnapshotBytes(*snapshot, 0); }),
            ErrorCode::kUnavailable);
  tier->FailWhere(nullptr);
  EXPECT_FALSE(store.poisoned());
  EXPECT_EQ(NumOtherThanStep(*snapshot, 1), 0);
}

TEST(SnapshotFilesTest, WithoutRoomForAThirdSlotTheSecondStepWaits) {
  const auto model = SmallModel();
  const auto tier = std::make_shared<FaultTier>();
  StateStore store(model, Cut(model), {.tiers = AllIn(tier)});
  FakeStep(store.impl());
  tier->RefuseArenas(true);
  const auto snapshot = TakeSnapshot(store.impl(), kConcurrent);
  FakeStep(store.impl());
  EXPECT_EQ(NumOtherThanStep(*snapshot, 1), 0);
  EXPECT_EQ(snapshot->waited_s(), 0);
  std::thread saver([&] {
    while (snapshot->waited_s() == 0) std::this_thread::yield();
    EXPECT_EQ(NumOtherThanStep(*snapshot, 1), 0);
    for (size_t i = 0; i < snapshot->segments().size(); ++i) {
      snapshot->Release(i);
    }
  });
  FakeStep(store.impl());
  saver.join();
  EXPECT_EQ(NumOtherThanStep(store.impl(), 3), 0);
}

TEST(SnapshotFilesTest, SparesAreOnlyMadeOfWhatIsAvailable) {
  const auto model = SmallModel();
  const StoreEstimate estimate = StateStore::Estimate(
      model, Cut(model), 0, {.tiers = AllIn(std::make_shared<FaultTier>())});
  // What it calls available does not shrink by what was made.
  const auto tier = std::make_shared<FaultTier>(
      testutil::FaultTierOptions{.available_bytes = estimate.total_bytes()});
  StateStore store(model, Cut(model), {.tiers = AllIn(tier)});
  const size_t num_arenas = store.impl().segments->arenas().size();
  ASSERT_LT(estimate.total_snapshot_bytes(), estimate.total_bytes());
  TakeSnapshot(store.impl(), kConcurrent);
  EXPECT_EQ(store.impl().segments->arenas().size(), num_arenas + 4);

  const auto small = std::make_shared<FaultTier>(
      testutil::FaultTierOptions{.available_bytes = estimate.total_bytes()});
  StateStore other(model, Cut(model), {.tiers = AllIn(small)});
  small->set_available_bytes(estimate.total_snapshot_bytes() - 1);
  TakeSnapshot(other.impl(), kConcurrent);
  EXPECT_EQ(other.impl().segments->arenas().size(), num_arenas + 3);
}

TEST(SnapshotRanksTest, RanksMustAgree) {
  RunConnectedRanks(2, [](const auto& communicator) {
    const auto model = SmallModel();
    StateStore store(model,
                     Partitioning::Build(model, {.stage = 2, .num_ranks = 2}),
                     {.communicator = communicator});
    const bool first = communicator->rank() == 0;
    EXPECT_EQ(
        CodeOf([&] { TakeSnapshot(store.impl(), {.concurrent = first}); }),
        ErrorCode::kInvalidArgument);
    if (first) store.Poison("the disk failed");
    const auto take = [&] { TakeSnapshot(store.impl(), kConcurrent); };
    EXPECT_EQ(CodeOf(take), ErrorCode::kUnavailable);
    EXPECT_THAT(TextOf(take), HasSubstr(first ? "the disk failed" : "rank 0"));
  });
}

TEST(SnapshotRanksTest, AWeightThatOneRankWroteIsSavedByAll) {
  RunConnectedRanks(2, [](const auto& communicator) {
    const auto model = SmallModel();
    StateStore store(model,
                     Partitioning::Build(model, {.stage = 2, .num_ranks = 2}),
                     {.communicator = communicator});
    if (communicator->rank() == 1) {
      store.Write("mlp.up.weight", "weight").Commit();
    }
    const auto snapshot = TakeSnapshot(store.impl(), {});
    EXPECT_THAT(Text(*snapshot), HasSubstr("weight0"));
  });
}

TEST(SnapshotRanksTest, ARankWithoutRoomLeavesNoneWithSpares) {
  RunConnectedRanks(2, [](const auto& communicator) {
    const auto model = SmallModel();
    const auto tier = std::make_shared<FaultTier>();
    StateStore store(model,
                     Partitioning::Build(model, {.stage = 2, .num_ranks = 2}),
                     {.communicator = communicator, .tiers = AllIn(tier)});
    tier->RefuseArenas(communicator->rank() == 1);
    const size_t before = store.impl().segments->arenas().size();
    const auto snapshot = TakeSnapshot(store.impl(), kConcurrent);
    EXPECT_EQ(store.impl().segments->arenas().size(), before);
    FakeStep(store.impl());
    EXPECT_EQ(NumOtherThanStep(*snapshot, 0), 5);  // Zeros, of no step.
    EXPECT_EQ(NumOtherThanStep(store.impl(), 1), 0);
  });
}

TEST(SnapshotRanksTest, CloseIsRefusedOnAllRanks) {
  RunConnectedRanks(2, [](const auto& communicator) {
    const auto model = SmallModel();
    StateStore store(model,
                     Partitioning::Build(model, {.stage = 2, .num_ranks = 2}),
                     {.communicator = communicator});
    const bool first = communicator->rank() == 0;
    auto snapshot = TakeSnapshot(store.impl(), kConcurrent);
    if (first) snapshot.reset();
    EXPECT_EQ(CodeOf([&] { store.Close(); }),
              first ? ErrorCode::kUnavailable : ErrorCode::kInvalidArgument);
    snapshot.reset();
    store.Close();
  });
}

TEST(SnapshotRanksTest, GatherReadsPeersWhereverTheirSegmentsAre) {
  RunConnectedRanks(3, [](const auto& communicator) {
    const auto model = SmallModel();
    StateStore store(model,
                     Partitioning::Build(model, {.stage = 2, .num_ranks = 3}),
                     {.communicator = communicator});
    const auto snapshot = TakeSnapshot(store.impl(), kConcurrent);
    // On some ranks the segments move to spare slots, which peers map too.
    store.Set("attn.qkv.weight", "momentum", UniqueValues(model[1], 4));
    const GatheredTensor tensor = store.Gather("attn.qkv.weight", "momentum");
    EXPECT_EQ(std::vector<float>(tensor.f32().begin(), tensor.f32().end()),
              UniqueValues(model[1], 4));
  });
}

}  // namespace
}  // namespace muonstore
