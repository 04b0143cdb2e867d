// Matrix layouts as text: every one comes back, nothing else is one.
#include <gtest/gtest.h>

#include "muonstore/matrix_layout.h"

namespace muonstore {
namespace {

TEST(MatrixLayoutText, EveryLayoutComesBack) {
  for (const MatrixLayout& layout :
       {MatrixLayout::Whole(), MatrixLayout::ConvFolded(),
        MatrixLayout::Experts(), MatrixLayout::PackedRows({24}),
        MatrixLayout::PackedRows({24, 8, 8}), MatrixLayout::PerHead(12),
        MatrixLayout::InterleavedHeads(4, 3),
        MatrixLayout::InterleavedPacked(2, 1)}) {
    EXPECT_EQ(MatrixLayout::Parse(layout.ToString()), layout)
        << layout.ToString();
  }
}

TEST(MatrixLayoutText, NothingElseIsOne) {
  for (const char* text :
       {"", "hole", "whole ", "per_head", "per_head[]", "per_head[-1]",
        "per_head[1", "per_head[1]]", "per_head[99999999999999999999]",
        "packed_rows[]", "packed_rows[1,]", "packed_rows[,1]",
        "packed_rows[1 2]", "interleaved_heads[4]",
        "interleaved_heads[4 x (3 + 3)]", "interleaved_heads[ x ( + 2)]",
        "interleaved_packed[4 x ( + 2)]", "interleaved_packed[x (3 + 2)]"}) {
    EXPECT_FALSE(MatrixLayout::Parse(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace muonstore
