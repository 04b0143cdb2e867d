// Elements of one dtype as elements of another, scaled.
//
// What: the one place where a conversion changes values. Widening is exact,
//   narrowing rounds once, to nearest even; a scale is applied in double before
//   that. A value that is neither scaled nor of another dtype keeps its bits.
// Threads: an ElementConverter belongs to one thread; it keeps scratch space.
// Failures: none for what CanConvert accepts.

#ifndef MUONSTORE_CONVERTERS_ELEMENT_CONVERTER_H_
#define MUONSTORE_CONVERTERS_ELEMENT_CONVERTER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "muonstore/dtype.h"

namespace muonstore {

// Whether finite values of `from` may have no finite place in `to`.
bool CanOverflow(DType from, DType to, double scale);

// Real floating point to f64, f32, f16 or bf16; anything to itself, unscaled.
bool CanConvert(DType from, DType to, double scale);

class ElementConverter {
 public:
  // `in` and `out` hold equally many packed elements. Returns how many finite
  // values became infinite.
  int64_t Convert(DType from, std::span<const std::byte> in, DType to,
                  double scale, std::span<std::byte> out);

 private:
  int64_t ConvertBlock(DType from, std::span<const std::byte> in, DType to,
                       double scale, std::span<std::byte> out);

  std::vector<double> doubles_;
  std::vector<float> floats_;
};

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_ELEMENT_CONVERTER_H_
