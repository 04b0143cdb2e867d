// Unaligned little-endian loads.
#ifndef MUONSTORE_FORMATS_TORCHFILE_LITTLE_ENDIAN_H_
#define MUONSTORE_FORMATS_TORCHFILE_LITTLE_ENDIAN_H_

#include <bit>
#include <concepts>
#include <cstring>

namespace muonstore::torchfile {

static_assert(std::endian::native == std::endian::little,
              "muonstore reads files on little-endian machines");

// The caller has checked that sizeof(T) bytes are there.
template <std::integral T>
T LoadLittleEndian(const void* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_LITTLE_ENDIAN_H_
