#include "formats/native/block_codec.h"

#include <string>

#include <zstd.h>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

// Byte b of element i goes to place b * count + i.
std::vector<std::byte> Shuffle(std::span<const std::byte> block,
                               size_t element_bytes) {
  std::vector<std::byte> out(block.size());
  const size_t count = block.size() / element_bytes;
  for (size_t b = 0; b < element_bytes; ++b) {
    std::byte* to = out.data() + b * count;
    const std::byte* from = block.data() + b;
    for (size_t i = 0; i < count; ++i) {
      to[i] = from[i * element_bytes];
    }
  }
  return out;
}

void Unshuffle(std::span<const std::byte> shuffled, size_t element_bytes,
               std::span<std::byte> out) {
  const size_t count = out.size() / element_bytes;
  for (size_t b = 0; b < element_bytes; ++b) {
    const std::byte* from = shuffled.data() + b * count;
    std::byte* to = out.data() + b;
    for (size_t i = 0; i < count; ++i) {
      to[i * element_bytes] = from[i];
    }
  }
}

}  // namespace

std::vector<std::byte> CompressBlock(std::span<const std::byte> block,
                                     size_t element_bytes, int level) {
  const std::vector<std::byte> shuffled = Shuffle(block, element_bytes);
  std::vector<std::byte> out(ZSTD_compressBound(block.size()));
  const size_t size = ZSTD_compress(out.data(), out.size(), shuffled.data(),
                                    shuffled.size(), level);
  if (ZSTD_isError(size) != 0) {
    throw Error(ErrorCode::kResourceExhausted,
                StrCat("zstd failed: ", ZSTD_getErrorName(size)));
  }
  out.resize(size);
  return out;
}

void DecompressBlock(std::span<const std::byte> stored, size_t element_bytes,
                     std::span<std::byte> out) {
  std::vector<std::byte> shuffled(out.size());
  const size_t size = ZSTD_decompress(shuffled.data(), shuffled.size(),
                                      stored.data(), stored.size());
  if (ZSTD_isError(size) != 0 || size != out.size()) {
    throw Error(
        ErrorCode::kDataLoss, "a compressed block is damaged",
        {.expected = StrCat(out.size(), " bytes after decompression"),
         .found = ZSTD_isError(size) != 0 ? std::string(ZSTD_getErrorName(size))
                                          : StrCat(size)});
  }
  Unshuffle(shuffled, element_bytes, out);
}

}  // namespace muonstore::native
