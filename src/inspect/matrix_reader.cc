#include "src/inspect/matrix_reader.h"

#include <algorithm>

#include "muonstore/error.h"

namespace muonstore {

bool MatrixReader::incomplete() const {
  const auto& missing = checkpoint_.tensors()[tensor_].missing;
  if (view_.num_elements() == 0) return false;
  // Rows may lie apart; a range between two rows hits neither.
  return std::any_of(missing.begin(), missing.end(),
                     [this](const ElementRange& range) {
                       for (int64_t i = 0; i < view_.rows; ++i) {
                         const int64_t begin = view_.row_offset(i);
                         if (begin >= range.end) return false;
                         if (range.begin < begin + view_.cols) return true;
                       }
                       return false;
                     });
}

std::span<const double> MatrixReader::Read(ElementRange range) {
  const auto element_bytes = static_cast<size_t>(SizeBytes(dtype()));
  const auto count = static_cast<size_t>(range.size());
  bytes_.resize(count * element_bytes);
  values_.resize(count);
  if (count == 0) return values_;
  // Contiguous rows are one read.
  const bool packed = view_.row_stride == view_.cols && view_.block_rows == 0;
  for (int64_t at = range.begin; at < range.end;) {
    const int64_t row = at / view_.cols;
    const int64_t end =
        packed ? range.end : std::min(range.end, (row + 1) * view_.cols);
    const int64_t first = view_.row_offset(row) + at % view_.cols;
    ReadTensor(checkpoint_, tensor_, {first, first + end - at},
               std::span(bytes_).subspan(
                   static_cast<size_t>(at - range.begin) * element_bytes,
                   static_cast<size_t>(end - at) * element_bytes));
    at = end;
  }
  try {
    ConvertToF64(dtype(), bytes_, values_);
  } catch (const Error& error) {
    throw error.WithTensor(checkpoint_.tensors()[tensor_].key.ToString());
  }
  return values_;
}

}  // namespace muonstore
