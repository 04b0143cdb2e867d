// One compressed block: bytes shuffled by significance, then zstd.
//
// What: the bytes that HDF5's shuffle filter followed by the registered filter
//   32015 (zstd) give, so that HDF5 tools with that filter read the chunks.
// Threads: pure functions.
// Failures: Error(kDataLoss) for bytes that are no such block of this size;
//   nothing beyond `out` is written and its size alone decides about memory.
#ifndef MUONSTORE_FORMATS_NATIVE_BLOCK_CODEC_H_
#define MUONSTORE_FORMATS_NATIVE_BLOCK_CODEC_H_

#include <cstddef>
#include <span>
#include <vector>

namespace muonstore::native {

inline constexpr int kMinZstdLevel = 1;
inline constexpr int kMaxZstdLevel = 19;

std::vector<std::byte> CompressBlock(std::span<const std::byte> block,
                                     size_t element_bytes, int level);

void DecompressBlock(std::span<const std::byte> stored, size_t element_bytes,
                     std::span<std::byte> out);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_BLOCK_CODEC_H_
