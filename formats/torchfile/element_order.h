// From bytes as they are stored to little-endian values.
#ifndef MUONSTORE_FORMATS_TORCHFILE_ELEMENT_ORDER_H_
#define MUONSTORE_FORMATS_TORCHFILE_ELEMENT_ORDER_H_

#include <cstddef>
#include <span>

#include "formats/torchfile/value_tree.h"
#include "muonstore/dtype.h"

namespace muonstore::torchfile {

// Reverses the bytes of every element, of every component of complex ones.
void SwapBytes(DType dtype, std::span<std::byte> elements);

// Applies lazy conjugation and negation to little-endian elements, by flipping
// sign bits: exact, NaN payloads included.
void ResolveLazyBits(const TensorInfo& tensor, std::span<std::byte> elements);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_ELEMENT_ORDER_H_
