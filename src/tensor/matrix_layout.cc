#include "muonstore/matrix_layout.h"

#include <algorithm>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

void RequirePositive(int64_t value, const char* what) {
  if (value < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("a matrix layout needs a positive ", what),
                {.expected = "at least 1", .found = std::to_string(value)});
  }
}

std::string JoinSizes(const std::vector<int64_t>& sizes) {
  std::string text;
  for (const int64_t size : sizes) {
    text += StrCat(text.empty() ? "" : ",", size);
  }
  return text;
}

[[noreturn]] void ThrowMisfit(const MatrixLayout& layout, const Shape& shape,
                              const std::string& expected) {
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("matrix layout ", layout.ToString(),
                     " does not fit a tensor of shape ", shape.ToString()),
              {.expected = expected});
}

// `batch` blocks of `rows` full rows; the first starts at row `first_row`.
MatrixBatch RowBlocks(const Shape& shape, int64_t first_row, int64_t rows,
                      int64_t batch) {
  const int64_t cols = shape.row_elements();
  return {.offset = first_row * cols,
          .batch = batch,
          .rows = rows,
          .cols = cols,
          .batch_stride = rows * cols,
          .row_stride = cols};
}

// Every layout here is made of blocks of full rows, so that it is enough to
// look at where blocks begin and end.
bool CoversOnce(const std::vector<MatrixBatch>& batches, const Shape& shape) {
  std::vector<std::pair<int64_t, int64_t>> blocks;
  for (const MatrixBatch& batch : batches) {
    if (batch.row_stride != batch.cols) {
      return false;
    }
    const int64_t rows = batch.block_rows == 0 ? batch.rows : batch.block_rows;
    for (int64_t b = 0; b < batch.batch; ++b) {
      for (int64_t row = 0; row < batch.rows; row += rows) {
        blocks.emplace_back(batch.row_offset(b, row), rows * batch.cols);
      }
    }
  }
  std::sort(blocks.begin(), blocks.end());
  int64_t covered = 0;
  for (const auto& [begin, size] : blocks) {
    if (begin != covered) {
      return false;
    }
    covered += size;
  }
  return covered == shape.num_elements();
}

}  // namespace

MatrixLayout MatrixLayout::Whole() { return MatrixLayout(Kind::kWhole); }

MatrixLayout MatrixLayout::ConvFolded() {
  return MatrixLayout(Kind::kConvFolded);
}

MatrixLayout MatrixLayout::PackedRows(std::vector<int64_t> row_sizes) {
  RequirePositive(static_cast<int64_t>(row_sizes.size()), "number of blocks");
  for (const int64_t size : row_sizes) {
    RequirePositive(size, "block size");
  }
  MatrixLayout layout(Kind::kPackedRows);
  layout.row_sizes_ = std::move(row_sizes);
  return layout;
}

MatrixLayout MatrixLayout::PerHead(int64_t num_heads) {
  RequirePositive(num_heads, "number of heads");
  MatrixLayout layout(Kind::kPerHead);
  layout.num_heads_ = num_heads;
  return layout;
}

MatrixLayout MatrixLayout::InterleavedHeads(int64_t num_groups,
                                            int64_t queries_per_group) {
  RequirePositive(num_groups, "number of groups");
  RequirePositive(queries_per_group, "number of queries per group");
  MatrixLayout layout(Kind::kInterleavedHeads);
  layout.num_heads_ = num_groups;
  layout.queries_per_group_ = queries_per_group;
  return layout;
}

MatrixLayout MatrixLayout::InterleavedPacked(int64_t num_groups,
                                             int64_t queries_per_group) {
  MatrixLayout layout = InterleavedHeads(num_groups, queries_per_group);
  layout.kind_ = Kind::kInterleavedPacked;
  return layout;
}

MatrixLayout MatrixLayout::Experts() { return MatrixLayout(Kind::kExperts); }

std::string MatrixLayout::ToString() const {
  switch (kind_) {
    case Kind::kWhole:
      return "whole";
    case Kind::kConvFolded:
      return "conv_folded";
    case Kind::kPackedRows:
      return StrCat("packed_rows[", JoinSizes(row_sizes_), "]");
    case Kind::kPerHead:
      return StrCat("per_head[", num_heads_, "]");
    case Kind::kInterleavedHeads:
      return StrCat("interleaved_heads[", num_heads_, " x (",
                    queries_per_group_, " + 2)]");
    case Kind::kInterleavedPacked:
      return StrCat("interleaved_packed[", num_heads_, " x (",
                    queries_per_group_, " + 2)]");
    case Kind::kExperts:
      return "experts";
  }
  return "unknown";
}

std::vector<MatrixBatch> MatrixLayout::Resolve(const Shape& shape) const {
  if (shape.num_elements() == 0) {
    return {};
  }
  std::vector<MatrixBatch> batches = ResolveBlocks(shape);
  if (!CoversOnce(batches, shape)) {
    throw Error(ErrorCode::kInternal,
                StrCat("matrix layout ", ToString(),
                       " does not cover a tensor of shape ", shape.ToString(),
                       " exactly once"));
  }
  return batches;
}

std::vector<MatrixBatch> MatrixLayout::ResolveBlocks(const Shape& shape) const {
  switch (kind_) {
    case Kind::kWhole:
      break;
    case Kind::kConvFolded:
      if (shape.rank() < 3) {
        ThrowMisfit(*this, shape, "three dimensions or more");
      }
      break;
    case Kind::kPackedRows:
      return ResolvePackedRows(shape);
    case Kind::kPerHead:
      return ResolvePerHead(shape);
    case Kind::kInterleavedHeads:
      return ResolveInterleavedHeads(shape);
    case Kind::kInterleavedPacked:
      return ResolveInterleavedPacked(shape);
    case Kind::kExperts:
      return ResolveExperts(shape);
  }
  const int64_t rows = shape.rank() < 2 ? 1 : shape.num_rows();
  const int64_t cols = shape.num_elements() / rows;
  return {{.offset = 0,
           .batch = 1,
           .rows = rows,
           .cols = cols,
           .batch_stride = rows * cols,
           .row_stride = cols}};
}

std::vector<MatrixBatch> MatrixLayout::ResolvePackedRows(
    const Shape& shape) const {
  std::vector<MatrixBatch> batches;
  int64_t first_row = 0;
  for (const int64_t size : row_sizes_) {
    if (size > shape.num_rows() - first_row) {
      break;
    }
    batches.push_back(RowBlocks(shape, first_row, size, 1));
    first_row += size;
  }
  if (batches.size() != row_sizes_.size() || first_row != shape.num_rows()) {
    ThrowMisfit(*this, shape,
                StrCat("blocks that sum to ", shape.num_rows(), " rows"));
  }
  return batches;
}

std::vector<MatrixBatch> MatrixLayout::ResolvePerHead(
    const Shape& shape) const {
  if (shape.num_rows() % num_heads_ != 0) {
    ThrowMisfit(
        *this, shape,
        StrCat("a number of heads that divides ", shape.num_rows(), " rows"));
  }
  return {RowBlocks(shape, 0, shape.num_rows() / num_heads_, num_heads_)};
}

int64_t MatrixLayout::InterleavedHeadRows(const Shape& shape) const {
  // In this order, so that no product can overflow.
  const int64_t num_rows = shape.num_rows();
  if (queries_per_group_ > num_rows ||
      num_heads_ > num_rows / (queries_per_group_ + 2) ||
      num_rows % (num_heads_ * (queries_per_group_ + 2)) != 0) {
    ThrowMisfit(*this, shape,
                StrCat("groups * (queries + 2) blocks that divide ", num_rows,
                       " rows"));
  }
  return num_rows / (num_heads_ * (queries_per_group_ + 2));
}

std::vector<MatrixBatch> MatrixLayout::ResolveInterleavedHeads(
    const Shape& shape) const {
  const int64_t head_rows = InterleavedHeadRows(shape);
  const int64_t blocks_per_group = queries_per_group_ + 2;
  std::vector<MatrixBatch> batches;
  for (int64_t block = 0; block < blocks_per_group; ++block) {
    MatrixBatch batch =
        RowBlocks(shape, block * head_rows, head_rows, num_heads_);
    batch.batch_stride *= blocks_per_group;
    batches.push_back(batch);
  }
  return batches;
}

std::vector<MatrixBatch> MatrixLayout::ResolveInterleavedPacked(
    const Shape& shape) const {
  const int64_t head_rows = InterleavedHeadRows(shape);
  const int64_t group_rows = head_rows * (queries_per_group_ + 2);
  std::vector<MatrixBatch> batches;
  int64_t first_row = 0;
  for (const int64_t heads : {queries_per_group_, int64_t{1}, int64_t{1}}) {
    MatrixBatch batch =
        RowBlocks(shape, first_row, heads * head_rows * num_heads_, 1);
    batch.block_rows = heads * head_rows;
    batch.block_stride = group_rows * batch.cols;
    batches.push_back(batch);
    first_row += heads * head_rows;
  }
  return batches;
}

std::vector<MatrixBatch> MatrixLayout::ResolveExperts(
    const Shape& shape) const {
  if (shape.rank() != 3) {
    ThrowMisfit(*this, shape, "three dimensions [experts, rows, cols]");
  }
  const int64_t rows = shape.dim(1);
  const int64_t cols = shape.dim(2);
  return {{.offset = 0,
           .batch = shape.dim(0),
           .rows = rows,
           .cols = cols,
           .batch_stride = rows * cols,
           .row_stride = cols}};
}

}  // namespace muonstore
