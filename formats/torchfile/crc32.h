// CRC-32 of zip (IEEE 802.3, reflected), and the only door to ISA-L and zlib.
#ifndef MUONSTORE_FORMATS_TORCHFILE_CRC32_H_
#define MUONSTORE_FORMATS_TORCHFILE_CRC32_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "muonstore/file_system.h"

namespace muonstore::torchfile {

// Continues `crc` (0 at the start) over `data`.
uint32_t Crc32(uint32_t crc, std::span<const std::byte> data);

// Of a and then b, from the CRCs of both and the size of b.
uint32_t Crc32Combine(uint32_t a, uint32_t b, uint64_t size_of_b_bytes);

// Eight hexadecimal digits.
std::string Crc32ToHex(uint32_t crc);

// Of a range of a file, in blocks of 1 MiB. `on_bytes` is told the size of each
// block after it was read.
uint32_t Crc32OfRange(RandomAccessFile& file, uint64_t offset_bytes,
                      uint64_t size_bytes,
                      const std::function<void(uint64_t bytes)>& on_bytes = {});

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_CRC32_H_
