// One file header of a zip archive, central or local.
#ifndef MUONSTORE_FORMATS_TORCHFILE_ZIP_ENTRY_H_
#define MUONSTORE_FORMATS_TORCHFILE_ZIP_ENTRY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace muonstore::torchfile {

inline constexpr uint64_t kCentralHeaderBytes = 46;
inline constexpr uint64_t kLocalHeaderBytes = 30;

struct ZipEntry {
  std::string_view name;  // Of the buffer that was parsed.
  uint16_t flags = 0;
  uint16_t method = 0;
  uint32_t crc32 = 0;
  uint64_t compressed_bytes = 0;
  uint64_t size_bytes = 0;
  uint64_t header_offset_bytes = 0;  // Central only: of the local header.
  uint64_t total_bytes = 0;          // This header, its name and extra fields.

  bool is_encrypted() const { return (flags & 0x2041u) != 0; }
  // Sizes and CRC follow the data; the local header may have zeros.
  bool has_descriptor() const { return (flags & 0x0008u) != 0; }
};

// Parses a header at the start of `bytes`, which are `offset_bytes` in the
// file; ZIP64 extra fields are resolved. Error(kDataLoss) if it is cut or
// malformed, Error(kUnsupported) if it lies on another disk.
ZipEntry ParseCentralHeader(std::span<const std::byte> bytes,
                            uint64_t offset_bytes);
ZipEntry ParseLocalHeader(std::span<const std::byte> bytes,
                          uint64_t offset_bytes);

// Bytes of the name and extra fields that follow a local header's fixed part.
uint64_t LocalHeaderTailBytes(std::span<const std::byte> fixed_part);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_ZIP_ENTRY_H_
