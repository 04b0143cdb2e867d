#include "muonstore/copy_plan.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"

namespace muonstore {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Fragments = std::vector<Fragment>;

// `count` runs of `length`, in segment `segment` from its start.
Fragment Strided(int64_t offset, int64_t length, int64_t count, int64_t stride,
                 int32_t segment) {
  return {.tensor_offset = offset,
          .length = length,
          .count = count,
          .stride = stride,
          .segment = segment};
}

Fragment Piece(int64_t offset, int64_t length, int32_t segment,
               int64_t segment_offset) {
  return {.tensor_offset = offset,
          .length = length,
          .segment = segment,
          .segment_offset = segment_offset};
}

void ExpectDataLoss(const Fragments& source, const Fragments& dest,
                    const std::string& range, const std::string& reason) {
  try {
    PlanCopy(source, dest);
    ADD_FAILURE() << range;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    EXPECT_THAT(error.message(), HasSubstr(range));
    EXPECT_THAT(error.message(), HasSubstr(reason));
  }
}

TEST(PlanCopyTest, CutsWhereEitherSideIsCut) {
  const Fragments source = {Piece(0, 6, 0, 10), Piece(6, 6, 1, 0)};
  const Fragments dest = {Piece(0, 4, 7, 0), Piece(4, 8, 8, 3)};
  EXPECT_THAT(PlanCopy(source, dest),
              ElementsAre(CopyOp{0, 7, 10, 0, 4}, CopyOp{0, 8, 14, 3, 2},
                          CopyOp{1, 8, 0, 5, 6}));
}

TEST(PlanCopyTest, AscendsByDestination) {
  const Fragments source = {Piece(0, 10, 0, 0)};
  const Fragments dest = {Piece(0, 3, 2, 8), Piece(3, 3, 2, 1),
                          Piece(6, 4, 1, 0)};
  EXPECT_THAT(PlanCopy(source, dest),
              ElementsAre(CopyOp{0, 1, 6, 0, 4}, CopyOp{0, 2, 3, 1, 3},
                          CopyOp{0, 2, 0, 8, 3}));
}

TEST(PlanCopyTest, MergesNeighbours) {
  const Fragments source = {Piece(0, 3, 0, 0), Piece(3, 3, 0, 3),
                            Piece(6, 4, 0, 6)};
  const Fragments dest = {Piece(0, 5, 4, 20), Piece(5, 5, 4, 25)};
  EXPECT_THAT(PlanCopy(source, dest), ElementsAre(CopyOp{0, 4, 0, 20, 10}));
}

TEST(PlanCopyTest, GathersColumnShardsInOneOperationEach) {
  // 5 rows of 8 columns, cut at column 3.
  const Fragments source = {Strided(0, 3, 5, 8, 0), Strided(3, 5, 5, 8, 1)};
  const Fragments dest = {Piece(0, 40, 9, 0)};
  EXPECT_THAT(PlanCopy(source, dest),
              ElementsAre(CopyOp{0, 9, 0, 0, 3, 5, 3, 8},
                          CopyOp{1, 9, 0, 3, 5, 5, 5, 8}));
  EXPECT_THAT(PlanCopy(dest, source),
              ElementsAre(CopyOp{9, 0, 0, 0, 3, 5, 8, 3},
                          CopyOp{9, 1, 3, 0, 5, 5, 8, 5}));
}

TEST(PlanCopyTest, EqualShardsAreOneContiguousCopy) {
  const Fragments shard = {Strided(3, 5, 6, 8, 2)};
  EXPECT_THAT(PlanCopy(shard, shard), ElementsAre(CopyOp{2, 2, 0, 0, 30}));
}

TEST(PlanCopyTest, ReshardsColumns) {
  // 4 rows of 12 columns: three shards of 4 to two of 6.
  const Fragments source = {Strided(0, 4, 4, 12, 0), Strided(4, 4, 4, 12, 1),
                            Strided(8, 4, 4, 12, 2)};
  const Fragments dest = {Strided(0, 6, 4, 12, 0), Strided(6, 6, 4, 12, 1)};
  EXPECT_THAT(PlanCopy(source, dest),
              ElementsAre(CopyOp{0, 0, 0, 0, 4, 4, 4, 6},
                          CopyOp{1, 0, 0, 4, 2, 4, 4, 6},
                          CopyOp{1, 1, 2, 0, 2, 4, 4, 6},
                          CopyOp{2, 1, 0, 2, 4, 4, 4, 6}));
}

TEST(PlanCopyTest, RowsListedOneByOneBecomeStrided) {
  Fragments source;
  for (int64_t row = 0; row < 50; ++row) {
    source.push_back(Piece(row * 8, 3, 0, row * 3));
    source.push_back(Piece(row * 8 + 3, 5, 1, row * 5));
  }
  const Fragments dest = {Piece(0, 400, 9, 0)};
  EXPECT_THAT(PlanCopy(source, dest),
              ElementsAre(CopyOp{0, 9, 0, 0, 3, 50, 3, 8},
                          CopyOp{1, 9, 0, 3, 5, 50, 5, 8}));
}

TEST(PlanCopyTest, TakesARowRangeOfAShardedMatrix) {
  // Rows 2 and 3 of 5, and half of row 4.
  const Fragments source = {Strided(0, 3, 5, 8, 0), Strided(3, 5, 5, 8, 1)};
  const Fragments dest = {Piece(16, 18, 9, 0)};
  EXPECT_THAT(
      PlanCopy(source, dest),
      ElementsAre(CopyOp{0, 9, 6, 0, 3, 2, 3, 8},
                  CopyOp{1, 9, 10, 3, 5, 2, 5, 8}, CopyOp{0, 9, 12, 16, 2}));
}

TEST(PlanCopyTest, ThousandRanksOfALargeMatrixStaySmall) {
  // 2^20 x 1024 on 1024 ranks; no list here may grow with the rows.
  constexpr int64_t kElements = int64_t{1} << 30;
  constexpr int32_t kRanks = 1024;
  Fragments source;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    source.push_back(
        Piece(rank * (kElements / kRanks), kElements / kRanks, rank, 5));
  }
  const Fragments dest = {Piece(0, kElements, 0, 0)};
  EXPECT_THAT(PlanCopy(source, dest), SizeIs(kRanks));
}

TEST(PlanCopyTest, LeavesOutSourceElementsThatNobodyWants) {
  // The replicas and the gap lie outside of what is asked for.
  const Fragments source = {Piece(0, 10, 0, 0), Piece(2, 3, 1, 0),
                            Piece(12, 4, 2, 0)};
  const Fragments dest = {Piece(5, 4, 0, 0), Piece(12, 2, 0, 4)};
  EXPECT_THAT(PlanCopy(source, dest),
              ElementsAre(CopyOp{0, 0, 5, 0, 4}, CopyOp{2, 0, 0, 4, 2}));
}

TEST(PlanCopyTest, NothingToFillIsNoCopy) {
  EXPECT_THAT(PlanCopy({}, {}), IsEmpty());
  EXPECT_THAT(PlanCopy(Fragments{Piece(0, 4, 0, 0)}, {}), IsEmpty());
}

TEST(PlanCopyTest, NamesTheFirstElementsThatAreMissing) {
  const Fragments source = {Piece(0, 4, 0, 0), Piece(6, 4, 1, 0)};
  ExpectDataLoss(source, {Piece(0, 10, 0, 0)}, "[4, 6)", "missing");
  ExpectDataLoss(source, {Piece(5, 3, 0, 0)}, "[5, 6)", "missing");
  ExpectDataLoss(source, {Piece(8, 5, 0, 0)}, "[10, 13)", "missing");
  ExpectDataLoss({}, {Piece(2, 3, 0, 0)}, "[2, 5)", "missing");
}

TEST(PlanCopyTest, NamesTheFirstElementsThatTheSourceHasTwice) {
  const Fragments source = {Piece(0, 6, 0, 0), Piece(4, 6, 1, 0)};
  ExpectDataLoss(source, {Piece(0, 10, 0, 0)}, "[4, 6)", "twice");
  ExpectDataLoss(source, {Piece(5, 4, 0, 0)}, "[5, 6)", "twice");
  EXPECT_THAT(PlanCopy(source, Fragments{Piece(6, 4, 0, 0)}),
              ElementsAre(CopyOp{1, 0, 2, 0, 4}));
}

TEST(PlanCopyTest, NamesElementsThatTheDestinationAsksForTwice) {
  const Fragments source = {Piece(0, 10, 0, 0)};
  ExpectDataLoss(source, {Piece(0, 6, 0, 0), Piece(3, 5, 1, 0)}, "[3, 6)",
                 "twice");
}

TEST(PlanCopyTest, RefusesToWriteOnePlaceTwice) {
  const Fragments source = {Piece(0, 10, 0, 0)};
  ExpectDataLoss(source, {Piece(0, 4, 1, 0), Piece(4, 6, 1, 3)}, "[4, 10)",
                 "written over");
}

TEST(PlanCopyTest, RefusesMalformedFragments) {
  const Fragments good = {Piece(0, 4, 0, 0)};
  const Fragments bad = {Strided(0, 4, 2, 3, 0)};
  EXPECT_THROW(PlanCopy(bad, good), Error);
  EXPECT_THROW(PlanCopy(good, bad), Error);
}

}  // namespace
}  // namespace muonstore
