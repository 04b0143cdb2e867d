// How a parameter is seen as one or more matrices.
//
// What: Muon works on 2-D matrices. A layout says which matrices a parameter's
//   tensor holds: the whole tensor, a folded convolution, packed rows (q,k,v or
//   gate,up), one block of rows per head, heads interleaved as
//   [Q0,K0,V0,Q1,...] (with several query blocks per key/value in grouped-query
//   attention), one matrix a head or one for all Q, all K and all V, or a stack
//   of experts. Resolving a layout gives strided batches, so that every view is
//   `as_strided` over the logical tensor.
// Ownership: plain values.
// Threads: immutable after construction.
// Failures: Error(kInvalidArgument) with the shape and the sizes when a layout
//   does not fit a shape. Row blocks of a 1-D tensor have one column.

#ifndef MUONSTORE_MATRIX_LAYOUT_H_
#define MUONSTORE_MATRIX_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muonstore/shape.h"

namespace muonstore {

// `batch` matrices of rows x cols. Element (b, i, j) is element
// row_offset(b, i) + j of the tensor in row-major order; columns are always
// contiguous. Rows are equally spaced, or come in blocks of `block_rows` rows
// that are `block_stride` apart. All values count elements.
struct MatrixBatch {
  int64_t offset = 0;
  int64_t batch = 1;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  // 0: one block of all rows.
  int64_t block_rows = 0;
  int64_t block_stride = 0;

  int64_t row_offset(int64_t matrix, int64_t row) const {
    const int64_t first = offset + matrix * batch_stride;
    return block_rows == 0 ? first + row * row_stride
                           : first + row / block_rows * block_stride +
                                 row % block_rows * row_stride;
  }

  friend bool operator==(const MatrixBatch&, const MatrixBatch&) = default;
};

class MatrixLayout {
 public:
  enum class Kind {
    kWhole,              // 2-D as it is; more dimensions: see ConvFolded.
    kConvFolded,         // [out, in, kh, kw] -> out x (in*kh*kw).
    kPackedRows,         // Row blocks of given sizes, one matrix each.
    kPerHead,            // Equal row blocks, one matrix a head.
    kInterleavedHeads,   // Groups of (queries_per_group Q, K, V) blocks.
    kInterleavedPacked,  // The same rows; one matrix each of Q, K and V.
    kExperts,            // [experts, rows, cols]: one matrix an expert.
  };

  // The tensor is one matrix. 0-D and 1-D tensors are a single row; tensors
  // with more than two dimensions are folded like a convolution.
  static MatrixLayout Whole();
  // [out, in, ...] -> out x (in * ...), for three dimensions or more.
  static MatrixLayout ConvFolded();
  // Blocks of rows one behind the other, one batch with one matrix each:
  // {q, k, v} or {gate, up}. `row_sizes` must sum to the number of rows.
  static MatrixLayout PackedRows(std::vector<int64_t> row_sizes);
  // `num_heads` equal blocks of rows, one batch with one matrix a head;
  // `num_heads` must divide the number of rows.
  static MatrixLayout PerHead(int64_t num_heads);
  // `num_groups` times [Q x queries_per_group, K, V] blocks of rows, all of the
  // same size (one head). Every block is a matrix. There is one batch for the
  // first Q of every group, one for the second and so on, then one for K and
  // one for V: queries_per_group + 2 batches of num_groups matrices.
  static MatrixLayout InterleavedHeads(int64_t num_groups,
                                       int64_t queries_per_group);
  // The same rows as three matrices: all Q blocks one under the other in the
  // order of the rows, then all K and all V blocks. Three batches of one
  // matrix; their rows come in blocks.
  static MatrixLayout InterleavedPacked(int64_t num_groups,
                                        int64_t queries_per_group);
  // [experts, rows, cols]: one batch with one matrix an expert.
  static MatrixLayout Experts();

  Kind kind() const { return kind_; }
  // "whole", "packed_rows[24,24,24]", "per_head[4]".
  std::string ToString() const;
  // What ToString() gave; nullopt for any other text.
  static std::optional<MatrixLayout> Parse(std::string_view text);

  // The batches for a tensor of `shape`. They cover every element exactly once
  // (checked here); a tensor without elements gives no batches.
  std::vector<MatrixBatch> Resolve(const Shape& shape) const;

  friend bool operator==(const MatrixLayout&, const MatrixLayout&) = default;

 private:
  explicit MatrixLayout(Kind kind) : kind_(kind) {}

  std::vector<MatrixBatch> ResolveBlocks(const Shape& shape) const;
  std::vector<MatrixBatch> ResolvePackedRows(const Shape& shape) const;
  std::vector<MatrixBatch> ResolvePerHead(const Shape& shape) const;
  // Rows of one head; throws where the groups do not fit the shape.
  int64_t InterleavedHeadRows(const Shape& shape) const;
  std::vector<MatrixBatch> ResolveInterleavedHeads(const Shape& shape) const;
  std::vector<MatrixBatch> ResolveInterleavedPacked(const Shape& shape) const;
  std::vector<MatrixBatch> ResolveExperts(const Shape& shape) const;

  Kind kind_ = Kind::kWhole;
  std::vector<int64_t> row_sizes_;
  int64_t num_heads_ = 0;  // Heads, or groups when interleaved.
  int64_t queries_per_group_ = 0;
};

}  // namespace muonstore

#endif  // MUONSTORE_MATRIX_LAYOUT_H_
