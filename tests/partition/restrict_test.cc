#include <algorithm>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/copy_plan.h"
#include "muonstore/error.h"
#include "tests/partition/random_model.h"
#include "tests/partition/slots.h"

namespace muonstore {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RestrictTest, CutsContiguousFragments) {
  const std::vector<Fragment> fragments = {
      {.tensor_offset = 0, .length = 10, .segment = 1, .segment_offset = 100},
      {.tensor_offset = 10, .length = 10, .segment = 2, .segment_offset = 7}};
  EXPECT_THAT(
      Restrict(fragments, {4, 12}),
      ElementsAre(Fragment{4, 6, 1, 0, 1, 104}, Fragment{10, 2, 1, 0, 2, 7}));
  EXPECT_THAT(Restrict(fragments, {0, 20}),
              ElementsAre(fragments[0], fragments[1]));
  EXPECT_THAT(Restrict(fragments, {3, 5}),
              ElementsAre(Fragment{3, 2, 1, 0, 1, 103}));
}

TEST(RestrictTest, SplitsAStridedFragmentIntoHeadBodyAndTail) {
  const std::vector<Fragment> fragments = {{.tensor_offset = 2,
                                            .length = 4,
                                            .count = 6,
                                            .stride = 10,
                                            .segment = 3,
                                            .segment_offset = 1000}};
  // From inside row 1 to inside row 4.
  EXPECT_THAT(Restrict(fragments, {14, 43}),
              ElementsAre(Fragment{14, 2, 1, 0, 3, 1006},
                          Fragment{22, 4, 2, 10, 3, 1008},
                          Fragment{42, 1, 1, 0, 3, 1016}));
  // Whole rows only.
  EXPECT_THAT(Restrict(fragments, {10, 30}),
              ElementsAre(Fragment{12, 4, 2, 10, 3, 1004}));
  // Inside one run, and between two.
  EXPECT_THAT(Restrict(fragments, {23, 25}),
              ElementsAre(Fragment{23, 2, 1, 0, 3, 1009}));
  EXPECT_THAT(Restrict(fragments, {26, 32}), IsEmpty());
}

TEST(RestrictTest, EmptyRangesHoldNothing) {
  const std::vector<Fragment> fragments = {{.length = 10}};
  EXPECT_THAT(Restrict(fragments, {4, 4}), IsEmpty());
  EXPECT_THAT(Restrict(fragments, {10, 50}), IsEmpty());
  EXPECT_THAT(Restrict({}, {0, 5}), IsEmpty());
}

TEST(RestrictTest, RefusesRangesThatMakeNoSense) {
  const std::vector<Fragment> fragments = {{.length = 10}};
  EXPECT_THROW(Restrict(fragments, {5, 4}), Error);
  EXPECT_THROW(Restrict(fragments, {-1, 4}), Error);
}

TEST(RestrictPropertyTest, HoldsExactlyTheElementsOfTheRange) {
  Random random(21);
  for (int round = 0; round < 1500; ++round) {
    const Box box{random.Pick(1, 3), random.Pick(1, 7), random.Pick(1, 9)};
    const int64_t elements = box.planes * box.rows * box.cols;
    const std::vector<Fragment> fragments =
        random.Chance(70) ? RandomMesh(random, box)
                          : RandomCuts(random, elements, 3);
    const int64_t begin = random.Pick(0, elements);
    const int64_t end = random.Pick(begin, elements + 5);
    std::vector<Slot> expected = Expand(fragments);
    std::erase_if(expected, [begin, end](const Slot& slot) {
      return slot.element < begin || slot.element >= end;
    });
    const std::vector<Fragment> found = Restrict(fragments, {begin, end});
    EXPECT_EQ(Expand(found), expected);
    EXPECT_LE(found.size(), 3 * fragments.size());
  }
}

}  // namespace
}  // namespace muonstore
