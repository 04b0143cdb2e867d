#include "tests/oracle/matrices.h"

#include <numeric>

namespace muonstore::oracle {
namespace {

using Rows = std::vector<size_t>;

size_t Product(const std::vector<int64_t>& dims, size_t first) {
  size_t product = 1;
  for (size_t i = first; i < dims.size(); ++i) {
    product *= static_cast<size_t>(dims[i]);
  }
  return product;
}

Rows Range(size_t begin, size_t end) {
  Rows rows(end - begin);
  std::iota(rows.begin(), rows.end(), begin);
  return rows;
}

// The matrix of these rows of a tensor whose rows have `cols` elements.
IndexedMatrix OfRows(const Rows& rows, size_t cols) {
  IndexedMatrix matrix{.rows = rows.size(), .cols = cols};
  for (const size_t row : rows) {
    for (size_t j = 0; j < cols; ++j) matrix.elements.push_back(row * cols + j);
  }
  return matrix;
}

std::vector<Rows> Blocks(size_t first, size_t num_rows, size_t num_blocks) {
  std::vector<Rows> blocks;
  const size_t size = num_rows / num_blocks;
  for (size_t i = 0; i < num_blocks; ++i) {
    blocks.push_back(Range(first + i * size, first + (i + 1) * size));
  }
  return blocks;
}

std::vector<Rows> PackedQkv(const std::vector<Rows>& heads, size_t queries) {
  std::vector<Rows> packed(3);
  for (size_t i = 0; i < heads.size(); ++i) {
    const size_t place = i % (queries + 2);
    Rows& to = packed[place < queries ? 0 : place - queries + 1];
    to.insert(to.end(), heads[i].begin(), heads[i].end());
  }
  return packed;
}

std::vector<Rows> RowsOf(size_t num_rows, const MatrixRule& rule) {
  const auto count = static_cast<size_t>(rule.count);
  const auto queries = static_cast<size_t>(rule.queries);
  switch (rule.kind) {
    case MatrixRule::Kind::kPerHead:
      return Blocks(0, num_rows, count);
    case MatrixRule::Kind::kInterleavedHeads:
      return Blocks(0, num_rows, count * (queries + 2));
    case MatrixRule::Kind::kInterleavedPacked:
      return PackedQkv(Blocks(0, num_rows, count * (queries + 2)), queries);
    case MatrixRule::Kind::kPackedRows: {
      std::vector<Rows> blocks;
      size_t first = 0;
      for (const int64_t size : rule.sizes) {
        blocks.push_back(Range(first, first + static_cast<size_t>(size)));
        first += static_cast<size_t>(size);
      }
      return blocks;
    }
    default:
      return {Range(0, num_rows)};
  }
}

}  // namespace

std::vector<IndexedMatrix> MatricesOf(const std::vector<int64_t>& shape,
                                      const MatrixRule& rule) {
  if (Product(shape, 0) == 0) return {};
  std::vector<IndexedMatrix> matrices;
  if (rule.kind == MatrixRule::Kind::kExperts) {
    const auto experts = static_cast<size_t>(shape[0]);
    const auto rows = static_cast<size_t>(shape[1]);
    for (const Rows& expert : Blocks(0, experts * rows, experts)) {
      matrices.push_back(OfRows(expert, Product(shape, 2)));
    }
    return matrices;
  }
  const auto num_rows = static_cast<size_t>(shape[0]);
  for (const Rows& rows : RowsOf(num_rows, rule)) {
    matrices.push_back(OfRows(rows, Product(shape, 1)));
  }
  return matrices;
}

}  // namespace muonstore::oracle
