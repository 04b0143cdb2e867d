// By how much two lists of elements differ.
//
// What: counts the elements with other bits; two NaNs count as equal, 0 and -0
//   do not. Blocks may come in any order.
// Memory: a few blocks of fixed size, whatever the lists' length.
// Threads, failures: a plain value; none.

#ifndef MUONSTORE_SRC_TENSOR_VALUE_DIFFERENCE_H_
#define MUONSTORE_SRC_TENSOR_VALUE_DIFFERENCE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "muonstore/dtype.h"

namespace muonstore {

class ValueDifference {
 public:
  // `a` and `b` hold equally many packed elements of one dtype; the first has
  // the number `first_index`.
  void Compare(DType dtype, std::span<const std::byte> a,
               std::span<const std::byte> b, int64_t first_index);
  void Merge(const ValueDifference& other);

  int64_t count() const { return count_; }
  // "3 elements, the first at 17, by at most 0.5".
  std::string ToString() const;

 private:
  void CompareBlock(DType dtype, std::span<const std::byte> a,
                    std::span<const std::byte> b, int64_t first_index);
  void AddLargest(double difference);

  int64_t count_ = 0;
  int64_t first_ = -1;
  double largest_ = 0;  // NaN: undefined, for example against a NaN.
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_TENSOR_VALUE_DIFFERENCE_H_
