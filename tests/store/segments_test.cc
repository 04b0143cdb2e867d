#include "src/store/segments.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/fault_tier.h"

namespace muonstore {
namespace {

using testutil::FaultTier;
using testutil::TierOperation;

// Larger than a copy's buffer, and no multiple of it.
constexpr uint64_t kLarge = (uint64_t{4} << 20) + 12;
constexpr uint64_t kSmall = 40;

std::vector<std::byte> Pattern(uint64_t size, uint32_t salt) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint32_t)) {
    const uint32_t word = salt * 40'000'003 + static_cast<uint32_t>(i);
    std::memcpy(bytes.data() + i, &word, sizeof(word));
  }
  return bytes;
}

// Flat group 0: a large segment, 2: a small one; 1 does not have the kind.
ArenaPlan PlanOf(std::string_view kind, std::shared_ptr<Tier> tier) {
  const int32_t num_slots = tier->addressable() || kind == kGradient ? 1 : 2;
  return {.kind = kind,
          .tier = std::move(tier),
          .arena = {.name = "a",
                    .block_bytes = {kLarge, kSmall},
                    .num_slots = num_slots,
                    .pinning = Pinning::kOff},
          .flat_groups = {0, 2}};
}

class SegmentsTest : public ::testing::TestWithParam<bool> {
 protected:
  SegmentsTest()
      : fault_(std::make_shared<FaultTier>(
            testutil::FaultTierOptions{.reorder = true, .seed = 5})),
        tier_(GetParam() ? std::shared_ptr<Tier>(fault_)
                         : std::shared_ptr<Tier>(MakePinnedHostTier())),
        segments_(std::vector<ArenaPlan>{PlanOf(kMomentum, tier_),
                                         PlanOf(kGradient, tier_)},
                  3) {}
  void TearDown() override { EXPECT_EQ(fault_->counts().races, 0); }

  static uint64_t SizeOf(int32_t group) { return group == 0 ? kLarge : kSmall; }
  std::vector<std::byte> Now(int32_t group) const {
    std::vector<std::byte> bytes(SizeOf(group));
    segments_.Read(kMomentum, group, 0, bytes)->Wait();
    return bytes;
  }
  void Update(int32_t group, uint32_t salt) {
    segments_.BeginUpdate(kMomentum, group);
    segments_.WriteNext(kMomentum, group, 0, Pattern(SizeOf(group), salt))
        ->Wait();
  }
  void WritePart(int32_t group, uint64_t offset, uint32_t salt) {
    segments_.BeginPartialWrite(kMomentum, group);
    segments_.Write(kMomentum, group, offset, Pattern(8, salt))->Wait();
  }
  void AddSpares() {
    ArenaPlan plan = PlanOf(kMomentum, tier_);
    plan.arena.num_slots = 1;
    segments_.AddSpares(plan, tier_->CreateArena(plan.arena));
  }
  PinnedSegment PinForSnapshot(int32_t group) {
    return segments_.Pin(kMomentum, group, PinPurpose::kSnapshot);
  }
  static std::vector<std::byte> BytesOf(const PinnedSegment& pin,
                                        int32_t group) {
    std::vector<std::byte> bytes(SizeOf(group));
    pin.Read(0, bytes)->Wait();
    return bytes;
  }

  std::shared_ptr<FaultTier> fault_;
  std::shared_ptr<Tier> tier_;
  Segments segments_;
};

TEST_P(SegmentsTest, SaysWhatItHas) {
  EXPECT_TRUE(segments_.has(kMomentum, 0));
  EXPECT_FALSE(segments_.has(kMomentum, 1));
  EXPECT_FALSE(segments_.has(kMaster, 0));
  EXPECT_FALSE(segments_.has("no_such_kind", 0));
  EXPECT_EQ(segments_.addressable(kMomentum, 0), !GetParam());
  EXPECT_FALSE(segments_.addressable(kMomentum, 1));
  EXPECT_EQ(segments_.size_bytes(kMomentum, 2), kSmall);
  EXPECT_EQ(segments_.size_bytes(kMomentum, 1), 0U);
  EXPECT_EQ(segments_.bytes(kMomentum, 2).size(), GetParam() ? 0 : kSmall);
  EXPECT_TRUE(segments_.bytes(kMomentum, 1).empty());
  std::vector<std::byte> out(1);
  EXPECT_EQ(CodeOf([&] { segments_.Read(kMaster, 0, 0, out); }),
            ErrorCode::kInternal);
  EXPECT_EQ(CodeOf([&] { segments_.BeginUpdate(kMomentum, 1); }),
            ErrorCode::kInternal);
}

TEST_P(SegmentsTest, StartsWithZeros) {
  EXPECT_EQ(Now(0), std::vector<std::byte>(kLarge));
}

TEST_P(SegmentsTest, ACommittedUpdateIsTheNextGeneration) {
  for (uint32_t salt = 1; salt <= 3; ++salt) {
    Update(0, salt);
    Update(2, salt + 10);
    segments_.CommitUpdates();
    EXPECT_EQ(Now(0), Pattern(kLarge, salt));
    EXPECT_EQ(Now(2), Pattern(kSmall, salt + 10));
  }
}

TEST_P(SegmentsTest, NothingIsWrittenWithoutABegin) {
  EXPECT_EQ(CodeOf([&] {
              segments_.WriteNext(kMomentum, 0, 0, Pattern(8, 1))->Wait();
            }),
            ErrorCode::kInternal);
  Update(0, 1);
  segments_.CommitUpdates();
  EXPECT_EQ(CodeOf([&] { segments_.next_bytes(kMomentum, 0); }),
            ErrorCode::kInternal);
}

TEST_P(SegmentsTest, GradientsAreWrittenWhereTheyAre) {
  segments_.Write(kGradient, 2, 0, Pattern(kSmall, 1))->Wait();
  segments_.Write(kGradient, 2, 8, Pattern(8, 2))->Wait();
  std::vector<std::byte> expected = Pattern(kSmall, 1);
  std::ranges::copy(Pattern(8, 2), expected.begin() + 8);
  std::vector<std::byte> bytes(kSmall);
  segments_.Read(kGradient, 2, 0, bytes)->Wait();
  EXPECT_EQ(bytes, expected);
}

TEST_P(SegmentsTest, APinKeepsItsGenerationThroughUpdates) {
  AddSpares();
  Update(0, 1);
  segments_.CommitUpdates();
  const PinnedSegment pin = PinForSnapshot(0);
  for (uint32_t salt = 2; salt <= 5; ++salt) {
    Update(0, salt);
    segments_.CommitUpdates();
    EXPECT_EQ(Now(0), Pattern(kLarge, salt));
    EXPECT_EQ(BytesOf(pin, 0), Pattern(kLarge, 1));
  }
  EXPECT_EQ(segments_.waited_s(), 0);
}

TEST_P(SegmentsTest, APinKeepsItsGenerationThroughPartialWrites) {
  AddSpares();
  Update(0, 1);
  segments_.CommitUpdates();
  std::vector<std::byte> expected = Pattern(kLarge, 1);
  const PinnedSegment pin = PinForSnapshot(0);
  for (uint32_t salt = 2; salt <= 4; ++salt) {
    const uint64_t offset = kLarge - uint64_t{8} * salt;
    WritePart(0, offset, salt);
    std::ranges::copy(Pattern(8, salt),
                      expected.begin() + static_cast<int64_t>(offset));
    EXPECT_EQ(Now(0), expected);
    EXPECT_EQ(BytesOf(pin, 0), Pattern(kLarge, 1));
  }
}

TEST_P(SegmentsTest, AMovedPinIsReleasedOnce) {
  PinnedSegment kept = PinForSnapshot(2);
  {
    PinnedSegment moved = std::move(kept);
    kept = PinForSnapshot(2);
    kept = std::move(moved);
  }
  EXPECT_LT(segments_.updates_before_wait(kMomentum, 2), 2);
  { const PinnedSegment last = std::move(kept); }
  EXPECT_EQ(segments_.updates_before_wait(kMomentum, 2), 2);
}

TEST_P(SegmentsTest, DroppedUpdatesOfOtherSlotsAreForgotten) {
  AddSpares();
  Update(0, 1);
  segments_.CommitUpdates();
  const PinnedSegment pin = PinForSnapshot(0);
  Update(0, 2);
  segments_.DropUpdates();
  EXPECT_EQ(Now(0), Pattern(kLarge, 1));
  segments_.CommitUpdates();
  EXPECT_EQ(Now(0), Pattern(kLarge, 1));
}

TEST_P(SegmentsTest, ListsAllArenas) {
  EXPECT_EQ(segments_.arenas().size(), 2U);
  AddSpares();
  EXPECT_EQ(segments_.arenas().size(), 3U);
}

INSTANTIATE_TEST_SUITE_P(Tiers, SegmentsTest, ::testing::Bool(),
                         [](const auto& test) {
                           return test.param ? "NotMemory" : "Host";
                         });

TEST(SegmentsInHostTest, AnUpdateIsMadeInPlaceOrInTheSpareSlot) {
  const std::shared_ptr<Tier> tier = MakePinnedHostTier();
  ArenaPlan plan = PlanOf(kMomentum, tier);
  Segments segments(std::span(&plan, 1), 3);
  segments.BeginUpdate(kMomentum, 2);
  EXPECT_EQ(segments.next_bytes(kMomentum, 2).data(),
            segments.bytes(kMomentum, 2).data());
  segments.CommitUpdates();

  segments.AddSpares(plan, tier->CreateArena(plan.arena));
  std::byte* const first = segments.bytes(kMomentum, 2).data();
  {
    const PinnedSegment pin = segments.Pin(kMomentum, 2, PinPurpose::kSnapshot);
    segments.BeginUpdate(kMomentum, 2);
    EXPECT_NE(segments.next_bytes(kMomentum, 2).data(), first);
    EXPECT_EQ(segments.bytes(kMomentum, 2).data(), first);
    EXPECT_EQ(pin.memory().data(), first);
    segments.CommitUpdates();
  }
  EXPECT_NE(segments.bytes(kMomentum, 2).data(), first);
  // The spare slot is where it lives now.
  segments.BeginUpdate(kMomentum, 2);
  EXPECT_NE(segments.next_bytes(kMomentum, 2).data(), first);
}

class SegmentsFaultTest : public ::testing::Test {
 protected:
  SegmentsFaultTest() {
    segments_.BeginUpdate(kMomentum, 0);
    segments_.WriteNext(kMomentum, 0, 0, Pattern(kLarge, 1))->Wait();
    segments_.CommitUpdates();
  }
  std::vector<std::byte> Now() {
    tier_->FailWhere(nullptr);
    std::vector<std::byte> bytes(kLarge);
    segments_.Read(kMomentum, 0, 0, bytes)->Wait();
    return bytes;
  }

  std::shared_ptr<FaultTier> tier_ = std::make_shared<FaultTier>();
  Segments segments_{std::vector<ArenaPlan>{PlanOf(kMomentum, tier_)}, 3};
};

TEST_F(SegmentsFaultTest, AFailedUpdateLeavesThePreviousGeneration) {
  tier_->FailWhere([](const TierOperation& what) { return what.is_write; });
  segments_.BeginUpdate(kMomentum, 0);
  const auto write = [&] {
    segments_.WriteNext(kMomentum, 0, 0, Pattern(kLarge, 2))->Wait();
  };
  EXPECT_EQ(CodeOf(write), ErrorCode::kUnavailable);
  segments_.DropUpdates();
  EXPECT_EQ(Now(), Pattern(kLarge, 1));
}

TEST_F(SegmentsFaultTest, AFailedCopyLeavesTheSegmentWhereItWas) {
  const PinnedSegment pin = segments_.Pin(kMomentum, 0, PinPurpose::kSnapshot);
  for (const bool is_write : {false, true}) {
    // The second part of the copy.
    tier_->FailWhere([is_write](const TierOperation& what) {
      return what.is_write == is_write && what.range.offset_bytes > 0;
    });
    EXPECT_EQ(CodeOf([&] { segments_.BeginPartialWrite(kMomentum, 0); }),
              ErrorCode::kUnavailable);
    EXPECT_EQ(Now(), Pattern(kLarge, 1));
  }
  segments_.BeginPartialWrite(kMomentum, 0);
  segments_.Write(kMomentum, 0, 0, Pattern(kLarge, 3))->Wait();
  EXPECT_EQ(Now(), Pattern(kLarge, 3));
}

}  // namespace
}  // namespace muonstore
