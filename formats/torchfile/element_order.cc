#include "formats/torchfile/element_order.h"

#include <algorithm>
#include <cstdint>

namespace muonstore::torchfile {
namespace {

// Bytes of one real number.
size_t ComponentBytes(DType dtype) {
  const auto size = static_cast<size_t>(SizeBytes(dtype));
  return IsComplex(dtype) ? size / 2 : size;
}

}  // namespace

void SwapBytes(DType dtype, std::span<std::byte> elements) {
  const size_t size = ComponentBytes(dtype);
  if (size == 1) {
    return;
  }
  for (size_t i = 0; i + size <= elements.size(); i += size) {
    std::reverse(elements.begin() + static_cast<ptrdiff_t>(i),
                 elements.begin() + static_cast<ptrdiff_t>(i + size));
  }
}

void ResolveLazyBits(const TensorInfo& tensor, std::span<std::byte> elements) {
  if (!tensor.is_conj && !tensor.is_neg) {
    return;
  }
  const size_t size = ComponentBytes(tensor.dtype);
  const size_t step = IsComplex(tensor.dtype) ? 2 : 1;
  // Conjugation flips imaginary parts only, negation flips everything.
  constexpr auto kSign = static_cast<std::byte>(0x80);
  for (size_t part = 0; part < step; ++part) {
    const bool flips = tensor.is_neg != (tensor.is_conj && part == 1);
    for (size_t i = part; flips && (i + 1) * size <= elements.size();
         i += step) {
      elements[(i + 1) * size - 1] ^= kSign;
    }
  }
}

}  // namespace muonstore::torchfile
