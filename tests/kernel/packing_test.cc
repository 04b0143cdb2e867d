// The packed order against its definition, and panels against theirs.
#include "src/kernel/packing.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "src/kernel/panels.h"

namespace muonstore {
namespace {

constexpr uint16_t kPackingGuard = 0xABCD;

// Rows further apart than they are long; every element has its own value.
struct Source {
  std::vector<BF16> memory;
  Block<const BF16> view;
};

Source MakeSource(int64_t rows, int64_t cols) {
  Source source;
  const int64_t ld = cols + 32;
  source.memory.resize(static_cast<size_t>(rows * ld), BF16{kPackingGuard});
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      source.memory[static_cast<size_t>(i * ld + j)].bits =
          static_cast<uint16_t>(i * cols + j);
    }
  }
  source.view = {source.memory.data(), ld, rows, cols};
  return source;
}

// Where packing.h says that element (i, j) of a B of `k` rows lies.
size_t PackedIndex(int64_t i, int64_t j, int64_t k) {
  return static_cast<size_t>(((j / 64) * k + i / 32 * 32) * 64 +
                             i % 32 / 2 * 128 + j % 64 * 2 + i % 2);
}

std::vector<std::pair<int64_t, int64_t>> PackingShapes() {
  return {{32, 32}, {32, 64}, {64, 96}, {96, 160}, {128, 128}};
}

TEST(Packing, RowsLieWhereTheHeaderSays) {
  for (const auto& [rows, cols] : PackingShapes()) {
    const Source source = MakeSource(rows, cols);
    std::vector<BF16> packed(static_cast<size_t>(PackedSize(rows, cols) + 8),
                             BF16{kPackingGuard});
    PackRows(source.view, packed.data());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        ASSERT_EQ(packed[PackedIndex(i, j, rows)].bits,
                  static_cast<uint16_t>(i * cols + j));
      }
    }
    for (int i = 1; i <= 8; ++i)
      EXPECT_EQ(packed.end()[-i].bits, kPackingGuard);
  }
}

TEST(Packing, TheTransposeLiesWhereTheHeaderSays) {
  for (const auto& [rows, cols] : PackingShapes()) {
    const Source source = MakeSource(rows, cols);
    std::vector<BF16> packed(static_cast<size_t>(PackedSize(cols, rows) + 8),
                             BF16{kPackingGuard});
    PackTransposed(source.view, packed.data());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        ASSERT_EQ(packed[PackedIndex(j, i, cols)].bits,
                  static_cast<uint16_t>(i * cols + j));
      }
    }
    for (int i = 1; i <= 8; ++i)
      EXPECT_EQ(packed.end()[-i].bits, kPackingGuard);
  }
}

// Columns from a multiple of 64 on are an operand of their own.
TEST(Packing, ColumnsOfAPackedOperandAreOne) {
  const Source source = MakeSource(64, 192);
  std::vector<BF16> whole(static_cast<size_t>(PackedSize(64, 192)));
  PackRows(source.view, whole.data());
  std::vector<BF16> part(static_cast<size_t>(PackedSize(64, 64)));
  PackRows({source.view.data + 128, source.view.ld, 64, 64}, part.data());
  for (size_t i = 0; i < part.size(); ++i) {
    EXPECT_EQ(part[i].bits,
              whole[static_cast<size_t>(PackedSize(64, 128)) + i].bits);
  }
}

TEST(Panels, CoverEveryElementOnce) {
  for (const int64_t cols :
       {1, 32, 33, 500, 512, 513, 1000, 1024, 3072, 4100}) {
    for (const int64_t min_count : {1, 2}) {
      const Panels panels = MakePanels(3, cols, 64, min_count);
      EXPECT_GE(panels.cols, cols);
      EXPECT_LT(panels.cols, cols + kPanelAlignment);
      EXPECT_LE(panels.width, 512);
      std::set<int64_t> offsets;
      for (int64_t row = 0; row < 3; ++row) {
        for (int64_t col = 0; col < panels.cols; ++col) {
          offsets.insert(panels.Offset(row, col));
          if (col + 1 < panels.cols && (col + 1) % panels.width != 0) {
            EXPECT_EQ(panels.Offset(row, col + 1), panels.Offset(row, col) + 1);
          }
        }
      }
      EXPECT_EQ(static_cast<int64_t>(offsets.size()), panels.size());
      EXPECT_EQ(*offsets.rbegin(), panels.size() - 1);
      EXPECT_EQ(panels.Offset(1, 0), panels.ld(0));
      EXPECT_EQ(panels.width_of(panels.count() - 1),
                panels.cols - panels.begin(panels.count() - 1));
      EXPECT_EQ(panels.width_of(0) % kPanelAlignment, 0);
    }
  }
}

TEST(Panels, AreAsManyAsAskedWhereThereAreColumns) {
  EXPECT_EQ(MakePanels(8, 256, 64, 2).count(), 2);
  EXPECT_EQ(MakePanels(8, 1024, 64, 2).count(), 2);
  EXPECT_EQ(MakePanels(8, 1056, 64, 2).count(), 3);
  EXPECT_EQ(MakePanels(8, 32, 64, 2).count(), 1);
}

}  // namespace
}  // namespace muonstore
