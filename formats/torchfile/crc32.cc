#include "formats/torchfile/crc32.h"

#include <isa-l.h>
#include <zlib.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace muonstore::torchfile {

uint32_t Crc32(uint32_t crc, std::span<const std::byte> data) {
  return crc32_gzip_refl(
      crc, reinterpret_cast<const unsigned char*>(data.data()), data.size());
}

uint32_t Crc32Combine(uint32_t a, uint32_t b, uint64_t size_of_b_bytes) {
  return static_cast<uint32_t>(
      crc32_combine(a, b, static_cast<z_off_t>(size_of_b_bytes)));
}

std::string Crc32ToHex(uint32_t crc) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(8, '0');
  for (size_t i = text.size(); i-- > 0; crc >>= 4) {
    text[i] = kDigits[crc & 15U];
  }
  return text;
}

uint32_t Crc32OfRange(RandomAccessFile& file, uint64_t offset_bytes,
                      uint64_t size_bytes,
                      const std::function<void(uint64_t bytes)>& on_bytes) {
  constexpr uint64_t kBlockBytes = uint64_t{1} << 20;
  std::vector<std::byte> block(std::min(size_bytes, kBlockBytes));
  uint32_t crc = 0;
  for (uint64_t done = 0; done < size_bytes;) {
    const std::span part =
        std::span(block).first(std::min(kBlockBytes, size_bytes - done));
    file.ReadAt(offset_bytes + done, part);
    crc = Crc32(crc, part);
    done += part.size();
    if (on_bytes) {
      on_bytes(part.size());
    }
  }
  return crc;
}

}  // namespace muonstore::torchfile
