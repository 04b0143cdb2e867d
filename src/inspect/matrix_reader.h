// Reads one matrix of a tensor in pieces, widened to double.
//
// What: a matrix is one element of a MatrixBatch. Its elements are addressed in
//   row-major order within the matrix, so that a reader needs no more memory
//   than the piece asked for, whatever the matrix's size.
// Ownership: keeps a reference to the Checkpoint, which must outlive it.
// Threads: one reader a thread; many readers may share a Checkpoint.
// Failures: what ReadTensor and ConvertToF64 throw, naming the tensor.

#ifndef MUONSTORE_SRC_INSPECT_MATRIX_READER_H_
#define MUONSTORE_SRC_INSPECT_MATRIX_READER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/matrix_layout.h"

namespace muonstore {

// Element (i, j) is element row_offset(i) + j of the tensor.
struct MatrixView {
  int64_t offset = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;
  // As in MatrixBatch.
  int64_t block_rows = 0;
  int64_t block_stride = 0;

  // Matrix `index` of `batch`.
  static MatrixView Of(const MatrixBatch& batch, int64_t index) {
    return {batch.row_offset(index, 0), batch.rows,       batch.cols,
            batch.row_stride,           batch.block_rows, batch.block_stride};
  }

  int64_t num_elements() const { return rows * cols; }
  int64_t row_offset(int64_t row) const {
    return block_rows == 0 ? offset + row * row_stride
                           : offset + row / block_rows * block_stride +
                                 row % block_rows * row_stride;
  }
};

// Elements that one Read should ask for.
inline constexpr int64_t kReadElements = int64_t{1} << 18;

class MatrixReader {
 public:
  // `tensor` indexes checkpoint.tensors().
  MatrixReader(const Checkpoint& checkpoint, size_t tensor,
               const MatrixView& view)
      : checkpoint_(checkpoint), tensor_(tensor), view_(view) {}

  const MatrixView& view() const { return view_; }
  DType dtype() const { return checkpoint_.tensors()[tensor_].dtype; }
  // True where an element of the matrix is missing in the checkpoint.
  bool incomplete() const;

  // Elements [range.begin, range.end) of the matrix. Valid until the next call.
  std::span<const double> Read(ElementRange range);

 private:
  const Checkpoint& checkpoint_;
  size_t tensor_;
  MatrixView view_;
  std::vector<std::byte> bytes_;
  std::vector<double> values_;
};

// Calls visit(range) for [0, num_elements) in pieces of kReadElements.
template <typename Visit>
void ForEachPiece(int64_t num_elements, const Visit& visit) {
  for (int64_t begin = 0; begin < num_elements; begin += kReadElements) {
    const int64_t left = num_elements - begin;
    visit(ElementRange{begin,
                       begin + (left < kReadElements ? left : kReadElements)});
  }
}

}  // namespace muonstore

#endif  // MUONSTORE_SRC_INSPECT_MATRIX_READER_H_
