#include <cstddef>
#include <memory>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "muonstore/torch.h"

namespace muonstore {
namespace {

// 0, 1, 2, ...: the owner of the memory under a view.
std::shared_ptr<std::vector<float>> Count(size_t size) {
  auto values = std::make_shared<std::vector<float>>(size);
  std::iota(values->begin(), values->end(), 0.0F);
  return values;
}

StridedView<std::byte> ViewOf(std::vector<float>& values, size_t offset) {
  StridedView<std::byte> view;
  view.data = reinterpret_cast<std::byte*>(values.data() + offset);
  return view;
}

TEST(TorchView, HeadsOfAMatrixLieWhereTheMemorySays) {
  auto values = Count(100);
  auto view = ViewOf(*values, 3);
  view.batch = 3;
  view.rows = view.block_rows = 2;
  view.cols = 4;
  view.batch_stride = 20;
  view.row_stride = 7;
  const at::Tensor heads = AsTensor(view, values);
  ASSERT_EQ(heads.sizes(), (std::vector<int64_t>{3, 2, 4}));
  for (int64_t b = 0; b < 3; ++b) {
    for (int64_t i = 0; i < 2; ++i) {
      for (int64_t j = 0; j < 4; ++j) {
        EXPECT_EQ(heads[b][i][j].item<float>(),
                  static_cast<float>(3 + b * 20 + i * 7 + j));
      }
    }
  }
}

TEST(TorchView, RowsInSpacedBlocksGiveADimensionMore) {
  auto values = Count(200);
  auto view = ViewOf(*values, 5);
  view.batch = 2;
  view.rows = 6;
  view.cols = 3;
  view.batch_stride = 90;
  view.row_stride = 3;
  view.block_rows = 2;
  view.block_stride = 30;
  const at::Tensor matrices = AsTensor(view, values);
  ASSERT_EQ(matrices.sizes(), (std::vector<int64_t>{2, 3, 2, 3}));
  // As StridedView defines element (b, i, j).
  const at::Tensor rows = matrices.flatten(1, 2);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t i = 0; i < 6; ++i) {
      for (int64_t j = 0; j < 3; ++j) {
        EXPECT_EQ(rows[b][i][j].item<float>(),
                  static_cast<float>(5 + b * 90 + i / 2 * 30 + i % 2 * 3 + j));
      }
    }
  }
}

TEST(TorchView, WritesGoToTheMemory) {
  auto values = Count(12);
  auto view = ViewOf(*values, 4);
  view.rows = view.block_rows = 2;
  view.cols = view.row_stride = 4;
  AsTensor(view, values).mul_(-1);
  EXPECT_EQ((*values)[3], 3);
  EXPECT_EQ((*values)[4], -4);
  EXPECT_EQ((*values)[11], -11);
}

TEST(TorchView, BFloat16IsNotWidened) {
  auto values = std::make_shared<std::vector<uint16_t>>(
      std::vector<uint16_t>{0x3f80, 0xc000, 0x4040, 0x4080});  // 1 -2 3 4
  StridedView<const std::byte> view;
  view.data = reinterpret_cast<const std::byte*>(values->data());
  view.dtype = DType::kBF16;
  view.rows = view.block_rows = 2;
  view.cols = view.row_stride = 2;
  const at::Tensor matrix = AsTensor(view, values);
  EXPECT_EQ(matrix.scalar_type(), at::kBFloat16);
  EXPECT_EQ(matrix[0][0][1].item<float>(), -2);
  EXPECT_EQ(matrix[0][1][0].item<float>(), 3);
}

TEST(TorchView, TheLastViewReleasesTheOwner) {
  auto values = Count(4);
  const std::weak_ptr<std::vector<float>> watched = values;
  auto view = ViewOf(*values, 0);
  view.rows = view.block_rows = 2;
  view.cols = view.row_stride = 2;
  at::Tensor whole = AsTensor(view, std::move(values));
  at::Tensor row = whole[0][1];
  whole.reset();
  EXPECT_FALSE(watched.expired());
  EXPECT_EQ(row[1].item<float>(), 3);
  row.reset();
  EXPECT_TRUE(watched.expired());
}

TEST(TorchView, NoMatricesAreAnEmptyTensor) {
  StridedView<std::byte> view;
  view.batch = 0;
  view.cols = 5;
  EXPECT_EQ(AsTensor(view, nullptr).numel(), 0);
}

TEST(TorchChunk, RefersToTheTensorsMemory) {
  const at::Tensor gradient = at::arange(6).to(at::kBFloat16).view({2, 3});
  const GradientChunk chunk = ChunkOf(gradient);
  EXPECT_EQ(chunk.dtype, DType::kBF16);
  EXPECT_EQ(chunk.data.data(), gradient.const_data_ptr());
  EXPECT_EQ(chunk.data.size(), 12U);
  EXPECT_EQ(chunk.first_element, 0);
  EXPECT_EQ(chunk.parameter_shape, Shape({2, 3}));
}

ErrorCode CodeOf(const at::Tensor& tensor) {
  try {
    ChunkOf(tensor);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST(TorchChunk, RefusesWhatIsNoDenseGradient) {
  const at::Tensor matrix = at::ones({3, 2});
  EXPECT_EQ(CodeOf(at::Tensor()), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(matrix.t()), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(matrix.to_sparse()), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(at::empty({2}, at::device(at::kMeta))),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(matrix.to(at::kDouble)), ErrorCode::kUnsupported);
  EXPECT_EQ(CodeOf(matrix.to(at::kLong)), ErrorCode::kUnsupported);
}

TEST(TorchFloats, OnlyOfDenseF32) {
  const at::Tensor matrix = at::arange(6).to(at::kFloat).view({2, 3});
  const auto floats = FloatsOf(matrix);
  EXPECT_EQ(floats.data(), matrix.const_data_ptr<float>());
  EXPECT_EQ(floats.size(), 6U);
  EXPECT_THROW(FloatsOf(matrix.t()), Error);
  EXPECT_THROW(FloatsOf(matrix.to(at::kBFloat16)), Error);
}

}  // namespace
}  // namespace muonstore
