// Steps, leases and savers at the same time: for ThreadSanitizer above all.
#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "muonstore/store.h"
#include "src/store/snapshot.h"
#include "src/store/store_impl.h"
#include "tests/store/fake_step.h"
#include "tests/store/store_ranks.h"
#include "tests/testutil/fault_tier.h"

namespace muonstore {
namespace {

using testutil::AllIn;
using testutil::FakeStep;
using testutil::FaultTier;

std::vector<ParameterSpec> TwoMatrices() {
  const auto matrix = [](const char* name, int64_t rows) {
    return ParameterSpec{.name = name,
                         .shape = Shape({rows, 1000}),
                         .weight_dtype = DType::kBF16,
                         .optimizer = Optimizer::kMuon};
  };
  return {matrix("large", 300), matrix("small", 2)};
}

Partitioning CutForOne(const std::vector<ParameterSpec>& model) {
  return Partitioning::Build(model, {.stage = 2, .num_ranks = 1});
}

// With true: all in a tier that is not memory.
class SnapshotThreadsTest : public ::testing::TestWithParam<bool> {
 protected:
  SnapshotThreadsTest()
      : tier_(std::make_shared<FaultTier>(
            testutil::FaultTierOptions{.reorder = true, .seed = 9})),
        store_(TwoMatrices(), CutForOne(TwoMatrices()),
               {.tiers = GetParam() ? AllIn(tier_) : TierPolicy{}}) {}
  void TearDown() override { EXPECT_EQ(tier_->counts().races, 0); }

  std::shared_ptr<FaultTier> tier_;
  StateStore store_;
};

TEST_P(SnapshotThreadsTest, ACommitIsInASnapshotAsAWholeOrNotAtAll) {
  std::atomic<bool> ended = false;
  std::thread writer([&] {
    for (int32_t round = 1; !ended; ++round) {
      WriteLease lease = store_.Write("large", "momentum");
      auto piece = lease.pieces().at(0).data;
      std::fill_n(reinterpret_cast<float*>(piece.data()),
                  piece.size() / sizeof(float), static_cast<float>(round));
      lease.Commit();
    }
  });
  int32_t num_torn = 0;
  for (int32_t round = 0; round < 600; ++round) {
    const auto snapshot = TakeSnapshot(store_.impl(), {.concurrent = true});
    const auto at = std::ranges::find(snapshot->segments(), kMomentum,
                                      &SnapshotSegment::kind);
    const auto segment = static_cast<size_t>(at - snapshot->segments().begin());
    // From the end to the beginning: a writer who is still at it is in front.
    constexpr size_t kPartFloats = 10'000;
    std::vector<float> floats(300'000);
    for (size_t first = floats.size(); first > 0;) {
      first -= kPartFloats;
      snapshot
          ->Read(segment, first * sizeof(float),
                 std::as_writable_bytes(
                     std::span(floats).subspan(first, kPartFloats)))
          ->Wait();
    }
    num_torn += std::ranges::count(floats, floats[0]) == 300'000 ? 0 : 1;
  }
  ended = true;
  writer.join();
  EXPECT_EQ(num_torn, 0);
}

TEST_P(SnapshotThreadsTest, SeveralThreadsSaveWhileStepsGoOn) {
  for (int64_t step = 0; step < 4; ++step) {
    const auto snapshot = TakeSnapshot(store_.impl(), {.concurrent = true});
    std::atomic<size_t> next = 0;
    std::atomic<int32_t> num_wrong = 0;
    const auto save = [&] {
      for (size_t i = next++; i < snapshot->segments().size(); i = next++) {
        const SnapshotSegment& segment = snapshot->segments()[i];
        const auto bytes = testutil::SnapshotBytes(*snapshot, i, 100'000);
        const auto right = testutil::StepBytes(segment.kind, segment.flat_group,
                                               3 * step, bytes.size());
        // A new store is all zeros.
        num_wrong += step == 0 || bytes == right ? 0 : 1;
        snapshot->Release(i);
      }
    };
    std::thread first(save);
    std::thread second(save);
    for (int32_t i = 0; i < 3; ++i) FakeStep(store_.impl());
    first.join();
    second.join();
    EXPECT_EQ(num_wrong, 0);
  }
  EXPECT_EQ(testutil::NumOtherThanStep(store_.impl(), 12), 0);
}

TEST_P(SnapshotThreadsTest, LeasesOfOneSegmentCommitOnTwoThreads) {
  const auto write = [&](const char* name) {
    for (int32_t round = 0; round < 20; ++round) {
      WriteLease lease = store_.Write(name, "momentum");
      auto piece = lease.pieces().at(0).data;
      std::ranges::fill(piece, static_cast<std::byte>(name[0] + round));
      lease.Commit();
    }
  };
  std::thread first([&] { write("large"); });
  std::thread second([&] { write("small"); });
  for (int32_t round = 0; round < 10; ++round) {
    const auto snapshot = TakeSnapshot(store_.impl(), {.concurrent = true});
    std::this_thread::yield();
  }
  first.join();
  second.join();
  for (const char* name : {"large", "small"}) {
    const ReadLease lease = store_.Read(name, "momentum");
    const auto piece = lease.pieces().at(0).data;
    EXPECT_EQ(std::ranges::count(piece, static_cast<std::byte>(name[0] + 19)),
              static_cast<int64_t>(piece.size()));
    EXPECT_EQ(lease.generation(), 20U);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiers, SnapshotThreadsTest, ::testing::Bool(),
                         [](const auto& test) {
                           return test.param ? "NotMemory" : "Host";
                         });

}  // namespace
}  // namespace muonstore
