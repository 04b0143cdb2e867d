// A run of a tensor's elements as boxes of its shape.
#ifndef MUONSTORE_FORMATS_NATIVE_BOXES_H_
#define MUONSTORE_FORMATS_NATIVE_BOXES_H_

#include <cstdint>
#include <vector>

#include "muonstore/copy_plan.h"
#include "muonstore/shape.h"

namespace muonstore::native {

struct Box {
  std::vector<int64_t> start;
  std::vector<int64_t> count;
};

// Boxes that hold the elements of `run` (row-major order) and no others, in
// that order: at most 2 * rank - 1, so three for a matrix. A scalar is a box
// without dimensions.
std::vector<Box> BoxesOf(const Shape& shape, ElementRange run);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_BOXES_H_
