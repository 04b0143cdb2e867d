#include "muonstore/matrix_layout.h"

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/tensor/error_of.h"

namespace muonstore {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Matrix = std::vector<std::vector<int64_t>>;

// The element indices of one matrix, as the header defines them.
Matrix View(const MatrixBatch& batch, int64_t index) {
  Matrix matrix;
  for (int64_t i = 0; i < batch.rows; ++i) {
    std::vector<int64_t> row;
    for (int64_t j = 0; j < batch.cols; ++j) {
      row.push_back(batch.row_offset(index, i) + j);
    }
    matrix.push_back(row);
  }
  return matrix;
}

// Rows [first, first + count) of a row-major tensor with `cols` columns.
Matrix Rows(int64_t first, int64_t count, int64_t cols) {
  Matrix matrix;
  for (int64_t i = first; i < first + count; ++i) {
    std::vector<int64_t> row;
    for (int64_t j = 0; j < cols; ++j) {
      row.push_back(i * cols + j);
    }
    matrix.push_back(row);
  }
  return matrix;
}

void CountElements(const Matrix& matrix, std::vector<int>& seen) {
  for (const std::vector<int64_t>& row : matrix) {
    for (const int64_t element : row) {
      ++seen.at(static_cast<size_t>(element));
    }
  }
}

void ExpectCoversOnce(const MatrixLayout& layout, const Shape& shape) {
  std::vector<int> seen(static_cast<size_t>(shape.num_elements()), 0);
  for (const MatrixBatch& batch : layout.Resolve(shape)) {
    for (int64_t b = 0; b < batch.batch; ++b) {
      CountElements(View(batch, b), seen);
    }
  }
  EXPECT_THAT(seen, ::testing::Each(1))
      << layout.ToString() << " " << shape.ToString();
}

TEST(MatrixLayoutTest, WholeIsOneMatrix) {
  const MatrixLayout layout = MatrixLayout::Whole();
  EXPECT_THAT(layout.Resolve(Shape({3, 5})),
              ElementsAre(MatrixBatch{0, 1, 3, 5, 15, 5}));
  EXPECT_THAT(layout.Resolve(Shape({4, 2, 3, 2})),
              ElementsAre(MatrixBatch{0, 1, 4, 12, 48, 12}));
  EXPECT_THAT(layout.Resolve(Shape({7})),
              ElementsAre(MatrixBatch{0, 1, 1, 7, 7, 7}));
  EXPECT_THAT(layout.Resolve(Shape()),
              ElementsAre(MatrixBatch{0, 1, 1, 1, 1, 1}));
}

TEST(MatrixLayoutTest, ConvIsFoldedToItsOutputChannels) {
  const MatrixLayout layout = MatrixLayout::ConvFolded();
  EXPECT_THAT(layout.Resolve(Shape({32, 2, 3, 2})),
              ElementsAre(MatrixBatch{0, 1, 32, 12, 384, 12}));
  EXPECT_THROW(static_cast<void>(layout.Resolve(Shape({32, 12}))), Error);
}

TEST(MatrixLayoutTest, PackedRowsAreOneMatrixEach) {
  const auto batches =
      MatrixLayout::PackedRows({4, 2, 1}).Resolve(Shape({7, 3}));
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_EQ(View(batches[0], 0), Rows(0, 4, 3));
  EXPECT_EQ(View(batches[1], 0), Rows(4, 2, 3));
  EXPECT_EQ(View(batches[2], 0), Rows(6, 1, 3));
}

TEST(MatrixLayoutTest, PerHeadIsOneBatch) {
  const auto batches = MatrixLayout::PerHead(4).Resolve(Shape({24, 5}));
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(batches[0].batch, 4);
  for (int64_t head = 0; head < 4; ++head) {
    EXPECT_EQ(View(batches[0], head), Rows(head * 6, 6, 5));
  }
}

TEST(MatrixLayoutTest, InterleavedHeadsWithGroupedQueries) {
  // Two groups of [Q, Q, Q, K, V], heads of 2 rows.
  const auto batches =
      MatrixLayout::InterleavedHeads(2, 3).Resolve(Shape({20, 4}));
  ASSERT_EQ(batches.size(), 5U);
  for (int64_t block = 0; block < 5; ++block) {
    const MatrixBatch& batch = batches[static_cast<size_t>(block)];
    ASSERT_EQ(batch.batch, 2);
    EXPECT_EQ(View(batch, 0), Rows(block * 2, 2, 4));
    EXPECT_EQ(View(batch, 1), Rows(10 + block * 2, 2, 4));
  }
}

TEST(MatrixLayoutTest, InterleavedPackedStacksTheHeadsOfEachKind) {
  // Two groups of [Q, Q, Q, K, V], heads of 2 rows: rows 0-5 and 10-15 are Q.
  const auto batches =
      MatrixLayout::InterleavedPacked(2, 3).Resolve(Shape({20, 4}));
  ASSERT_EQ(batches.size(), 3U);
  const auto stacked = [](int64_t first, int64_t rows) {
    Matrix matrix = Rows(first, rows, 4);
    const Matrix second = Rows(first + 10, rows, 4);
    matrix.insert(matrix.end(), second.begin(), second.end());
    return matrix;
  };
  EXPECT_EQ(View(batches[0], 0), stacked(0, 6));
  EXPECT_EQ(View(batches[1], 0), stacked(6, 2));
  EXPECT_EQ(View(batches[2], 0), stacked(8, 2));
}

TEST(MatrixLayoutTest, ExpertsAreOneMatrixEach) {
  EXPECT_THAT(MatrixLayout::Experts().Resolve(Shape({6, 4, 3})),
              ElementsAre(MatrixBatch{0, 6, 4, 3, 12, 3}));
  EXPECT_THROW(
      static_cast<void>(MatrixLayout::Experts().Resolve(Shape({6, 4}))), Error);
}

TEST(MatrixLayoutTest, OneDimensionalTensorsHaveRowsOfOneElement) {
  const auto batches = MatrixLayout::PerHead(3).Resolve(Shape({6}));
  EXPECT_THAT(batches, ElementsAre(MatrixBatch{0, 3, 2, 1, 2, 1}));
}

TEST(MatrixLayoutTest, TensorsWithoutElementsHaveNoMatrices) {
  for (const MatrixLayout& layout :
       {MatrixLayout::Whole(), MatrixLayout::PackedRows({2, 2}),
        MatrixLayout::PerHead(4), MatrixLayout::InterleavedHeads(2, 1),
        MatrixLayout::Experts(), MatrixLayout::ConvFolded()}) {
    EXPECT_THAT(layout.Resolve(Shape({0, 3})), IsEmpty()) << layout.ToString();
    EXPECT_THAT(layout.Resolve(Shape({4, 0, 2})), IsEmpty());
  }
}

TEST(MatrixLayoutTest, SaysWhatDoesNotFit) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const Shape shape({10, 4});
  for (const MatrixLayout& layout :
       {MatrixLayout::PackedRows({4, 5}), MatrixLayout::PackedRows({4, 7}),
        MatrixLayout::PackedRows({kMax, kMax}), MatrixLayout::PerHead(3),
        MatrixLayout::PerHead(kMax), MatrixLayout::InterleavedHeads(2, 1),
        MatrixLayout::InterleavedHeads(1, kMax),
        MatrixLayout::InterleavedHeads(kMax, 1),
        MatrixLayout::InterleavedPacked(2, 1), MatrixLayout::Experts()}) {
    const auto resolve = [&] { static_cast<void>(layout.Resolve(shape)); };
    EXPECT_EQ(CodeOf(resolve), ErrorCode::kInvalidArgument);
    EXPECT_THAT(MessageOf(resolve), HasSubstr("[10, 4]"));
    EXPECT_THAT(MessageOf(resolve), HasSubstr(layout.ToString()));
  }
}

TEST(MatrixLayoutTest, RefusesSizesThatAreNotPositive) {
  EXPECT_THROW(MatrixLayout::PackedRows({}), Error);
  EXPECT_THROW(MatrixLayout::PackedRows({3, 0}), Error);
  EXPECT_THROW(MatrixLayout::PackedRows({-1, 4}), Error);
  EXPECT_THROW(MatrixLayout::PerHead(0), Error);
  EXPECT_THROW(MatrixLayout::InterleavedHeads(0, 1), Error);
  EXPECT_THROW(MatrixLayout::InterleavedHeads(1, 0), Error);
}

TEST(MatrixLayoutTest, Names) {
  EXPECT_EQ(MatrixLayout::Whole().ToString(), "whole");
  EXPECT_EQ(MatrixLayout::ConvFolded().ToString(), "conv_folded");
  EXPECT_EQ(MatrixLayout::PackedRows({24, 12, 12}).ToString(),
            "packed_rows[24,12,12]");
  EXPECT_EQ(MatrixLayout::PerHead(4).ToString(), "per_head[4]");
  EXPECT_EQ(MatrixLayout::InterleavedHeads(2, 3).ToString(),
            "interleaved_heads[2 x (3 + 2)]");
  EXPECT_EQ(MatrixLayout::InterleavedPacked(2, 3).ToString(),
            "interleaved_packed[2 x (3 + 2)]");
  EXPECT_EQ(MatrixLayout::Experts().ToString(), "experts");
  EXPECT_EQ(MatrixLayout::PerHead(4), MatrixLayout::PerHead(4));
  EXPECT_NE(MatrixLayout::PerHead(4), MatrixLayout::PerHead(2));
}

TEST(MatrixLayoutPropertyTest, EveryLayoutCoversEachElementOnce) {
  std::mt19937_64 random(7);
  const auto pick = [&random](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() %
                                      static_cast<uint64_t>(high - low + 1));
  };
  for (int round = 0; round < 300; ++round) {
    const int64_t cols = pick(1, 9);
    const int64_t head_rows = pick(1, 5);
    const int64_t groups = pick(1, 6);
    const int64_t queries = pick(1, 5);
    ExpectCoversOnce(MatrixLayout::InterleavedHeads(groups, queries),
                     Shape({groups * (queries + 2) * head_rows, cols}));
    ExpectCoversOnce(MatrixLayout::InterleavedPacked(groups, queries),
                     Shape({groups * (queries + 2) * head_rows, cols}));
    ExpectCoversOnce(MatrixLayout::PerHead(groups),
                     Shape({groups * head_rows, cols}));
    ExpectCoversOnce(MatrixLayout::Experts(), Shape({groups, head_rows, cols}));
    ExpectCoversOnce(MatrixLayout::ConvFolded(),
                     Shape({groups, head_rows, cols, queries}));
    std::vector<int64_t> sizes;
    int64_t rows = 0;
    for (int64_t i = 0; i < groups; ++i) {
      sizes.push_back(pick(1, 7));
      rows += sizes.back();
    }
    ExpectCoversOnce(MatrixLayout::PackedRows(sizes), Shape({rows, cols}));
    ExpectCoversOnce(MatrixLayout::Whole(), Shape({rows, cols}));
    ExpectCoversOnce(MatrixLayout::Whole(), Shape({rows}));
  }
}

}  // namespace
}  // namespace muonstore
