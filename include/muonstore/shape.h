// The logical shape of a tensor.
//
// What: dimensions in row-major (C) order; rank 0 is a scalar with one element.
// Ownership: a plain value.
// Threads: a plain value.
// Failures: Error(kDataLoss) for a negative dimension or a count that does not
//   fit into int64_t; nothing is allocated from a shape before this check.

#ifndef MUONSTORE_SHAPE_H_
#define MUONSTORE_SHAPE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace muonstore {

class Shape {
 public:
  Shape() = default;
  // Checks the dimensions and their product.
  explicit Shape(std::vector<int64_t> dims);

  const std::vector<int64_t>& dims() const { return dims_; }
  int64_t rank() const { return static_cast<int64_t>(dims_.size()); }
  int64_t dim(int64_t axis) const { return dims_[static_cast<size_t>(axis)]; }
  int64_t num_elements() const { return num_elements_; }
  // Rows as the tools count them: the first dimension; 1 for a scalar.
  int64_t num_rows() const { return dims_.empty() ? 1 : dims_[0]; }
  // Elements of one row; 0 when the tensor has no rows.
  int64_t row_elements() const {
    return num_rows() == 0 ? 0 : num_elements_ / num_rows();
  }
  // Row-major strides in elements, as torch gives a contiguous tensor: a
  // dimension of size 0 counts as 1.
  std::vector<int64_t> ContiguousStrides() const;
  // "[72, 24]"; "[]" for a scalar.
  std::string ToString() const;

  friend bool operator==(const Shape&, const Shape&) = default;
  // Lexicographic on the dimensions, as Python compares tuples.
  friend auto operator<=>(const Shape& a, const Shape& b) {
    return a.dims_ <=> b.dims_;
  }

 private:
  std::vector<int64_t> dims_;
  int64_t num_elements_ = 1;
};

// Product of two non-negative counts; Error(kDataLoss) on overflow or on a
// negative factor. `what` names the count in the message.
int64_t CheckedMultiply(int64_t a, int64_t b, const char* what);
// Sum of two non-negative counts, checked in the same way.
int64_t CheckedAdd(int64_t a, int64_t b, const char* what);

}  // namespace muonstore

#endif  // MUONSTORE_SHAPE_H_
