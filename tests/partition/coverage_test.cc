#include <cstdint>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/copy_plan.h"
#include "muonstore/error.h"
#include "tests/partition/random_model.h"
#include "tests/partition/slots.h"
#include "tests/tensor/error_of.h"

namespace muonstore {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(CoverageTest, AWholeTensorIsComplete) {
  const std::vector<Fragment> fragments = {{.tensor_offset = 5, .length = 7},
                                           {.tensor_offset = 0, .length = 5}};
  EXPECT_TRUE(CheckCoverage(fragments, 12).complete());
}

TEST(CoverageTest, NamesGapsOverlapsAndWhatIsBeyond) {
  const std::vector<Fragment> fragments = {
      {.tensor_offset = 2, .length = 4},  {.tensor_offset = 4, .length = 3},
      {.tensor_offset = 5, .length = 1},  {.tensor_offset = 9, .length = 2},
      {.tensor_offset = 10, .length = 6}, {.tensor_offset = 20, .length = 2}};
  const Coverage coverage = CheckCoverage(fragments, 12);
  EXPECT_THAT(coverage.missing,
              ElementsAre(ElementRange{0, 2}, ElementRange{7, 9}));
  EXPECT_THAT(coverage.overlapping,
              ElementsAre(ElementRange{4, 6}, ElementRange{10, 11}));
  EXPECT_THAT(coverage.outside,
              ElementsAre(ElementRange{12, 16}, ElementRange{20, 22}));
  EXPECT_FALSE(coverage.complete());
}

TEST(CoverageTest, NothingCoversNothing) {
  EXPECT_TRUE(CheckCoverage({}, 0).complete());
  EXPECT_THAT(CheckCoverage({}, 3).missing, ElementsAre(ElementRange{0, 3}));
}

TEST(CoverageTest, ColumnShardsOfAMatrix) {
  // 4 rows of 10 columns: columns 0-2, 3-6, 7-9; then without the middle.
  const std::vector<Fragment> shards = {
      {.tensor_offset = 0, .length = 3, .count = 4, .stride = 10},
      {.tensor_offset = 7, .length = 3, .count = 4, .stride = 10},
      {.tensor_offset = 3, .length = 4, .count = 4, .stride = 10}};
  EXPECT_TRUE(CheckCoverage(shards, 40).complete());
  const Coverage coverage =
      CheckCoverage(std::span<const Fragment>(shards).first(2), 40);
  EXPECT_THAT(coverage.missing,
              ElementsAre(ElementRange{3, 7}, ElementRange{13, 17},
                          ElementRange{23, 27}, ElementRange{33, 37}));
  EXPECT_THAT(coverage.overlapping, IsEmpty());
}

TEST(CoverageTest, AStridedFragmentMayWrapAroundTheRow) {
  // Runs of 3 from column 8 of 10: into the next row, over column 0.
  const std::vector<Fragment> fragments = {
      {.tensor_offset = 8, .length = 3, .count = 2, .stride = 10},
      {.tensor_offset = 0, .length = 8, .count = 2, .stride = 10}};
  const Coverage coverage = CheckCoverage(fragments, 20);
  EXPECT_THAT(coverage.missing, IsEmpty());
  EXPECT_THAT(coverage.overlapping, ElementsAre(ElementRange{10, 11}));
  EXPECT_THAT(coverage.outside, ElementsAre(ElementRange{20, 21}));
}

TEST(CoverageTest, ManyRowsOfAWholeMatrixAreNotWalked) {
  // 10^15 rows: only a proof that joins columns first can end.
  constexpr int64_t kRows = 1'000'000'000'000'000;
  const std::vector<Fragment> shards = {
      {.tensor_offset = 0, .length = 3, .count = kRows, .stride = 8},
      {.tensor_offset = 3, .length = 5, .count = kRows, .stride = 8}};
  EXPECT_TRUE(CheckCoverage(shards, kRows * 8).complete());
}

TEST(CoverageTest, RefusesMalformedFragments) {
  const std::vector<Fragment> malformed = {
      {.length = 0},
      {.length = -1},
      {.tensor_offset = -1, .length = 1},
      {.length = 1, .count = 0},
      {.length = 3, .count = 2, .stride = 2},
      {.length = 1, .segment_offset = -4},
      {.tensor_offset = kMax, .length = 1},
      {.length = 2, .count = kMax / 2, .stride = 3},
      {.length = 1, .segment_offset = kMax},
  };
  for (const Fragment& fragment : malformed) {
    const auto check = [&] { CheckCoverage(std::span(&fragment, 1), 10); };
    EXPECT_EQ(CodeOf(check), ErrorCode::kInvalidArgument)
        << "offset " << fragment.tensor_offset << " length " << fragment.length;
  }
  EXPECT_EQ(CodeOf([] { CheckCoverage({}, -1); }), ErrorCode::kInvalidArgument);
}

// Ranges of consecutive elements for which `holds` is true.
template <typename Predicate>
std::vector<ElementRange> RangesWhere(int64_t begin, int64_t end,
                                      Predicate holds) {
  std::vector<ElementRange> ranges;
  for (int64_t i = begin; i < end; ++i) {
    if (!holds(i)) {
      continue;
    }
    if (!ranges.empty() && ranges.back().end == i) {
      ++ranges.back().end;
    } else {
      ranges.push_back({i, i + 1});
    }
  }
  return ranges;
}

void ExpectLikeCounting(const std::vector<Fragment>& fragments,
                        int64_t num_elements) {
  constexpr int64_t kLimit = 2000;
  std::vector<int> times(kLimit, 0);
  for (const Slot& slot : Expand(fragments)) {
    ++times.at(static_cast<size_t>(slot.element));
  }
  const auto at = [&times](int64_t i) { return times[static_cast<size_t>(i)]; };
  const Coverage coverage = CheckCoverage(fragments, num_elements);
  EXPECT_EQ(coverage.missing, RangesWhere(0, num_elements, [&at](int64_t i) {
              return at(i) == 0;
            }));
  EXPECT_EQ(
      coverage.overlapping,
      RangesWhere(0, num_elements, [&at](int64_t i) { return at(i) > 1; }));
  EXPECT_EQ(coverage.outside,
            RangesWhere(num_elements, kLimit,
                        [&at](int64_t i) { return at(i) > 0; }));
}

TEST(CoveragePropertyTest, AgreesWithCountingEachElement) {
  Random random(11);
  for (int round = 0; round < 1500; ++round) {
    std::vector<Fragment> fragments;
    // Few distinct strides and lengths, so that columns often meet.
    const int64_t stride = random.Pick(4, 9);
    for (int64_t i = random.Pick(0, 7); i > 0; --i) {
      Fragment fragment{.tensor_offset = random.Pick(0, 60),
                        .length = random.Pick(1, 4)};
      if (random.Chance(60)) {
        fragment.count = random.Pick(1, 6);
        fragment.stride = stride + (random.Chance(20) ? 1 : 0);
      }
      fragments.push_back(fragment);
    }
    ExpectLikeCounting(fragments, random.Pick(0, 90));
  }
}

TEST(CoveragePropertyTest, MeshesAreCompleteUntilABoxIsLostOrDoubled) {
  Random random(12);
  for (int round = 0; round < 400; ++round) {
    const Box box{random.Pick(1, 3), random.Pick(1, 9), random.Pick(1, 9)};
    const int64_t elements = box.planes * box.rows * box.cols;
    std::vector<Fragment> fragments = RandomMesh(random, box);
    EXPECT_TRUE(CheckCoverage(fragments, elements).complete());
    const auto victim = static_cast<size_t>(
        random.Pick(0, static_cast<int64_t>(fragments.size()) - 1));
    if (random.Chance(50)) {
      fragments.push_back(fragments[victim]);
    } else {
      fragments.erase(fragments.begin() + static_cast<std::ptrdiff_t>(victim));
    }
    EXPECT_FALSE(CheckCoverage(fragments, elements).complete());
    ExpectLikeCounting(fragments, elements);
  }
}

}  // namespace
}  // namespace muonstore
