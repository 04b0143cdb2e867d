#include "formats/torchfile/zip_entry.h"

#include <string>
#include <utility>

#include "formats/torchfile/little_endian.h"
#include "formats/torchfile/zip_signatures.h"
#include "muonstore/error.h"

namespace muonstore::torchfile {
namespace {

constexpr uint32_t kSaturated = 0xFFFFFFFFu;
constexpr uint16_t kZip64ExtraId = 1;

[[noreturn]] void Fail(uint64_t offset_bytes, std::string message) {
  throw Error(ErrorCode::kDataLoss, std::move(message),
              {.offset_bytes = offset_bytes});
}

uint16_t Load16(std::span<const std::byte> bytes, size_t at) {
  return LoadLittleEndian<uint16_t>(bytes.data() + at);
}
uint32_t Load32(std::span<const std::byte> bytes, size_t at) {
  return LoadLittleEndian<uint32_t>(bytes.data() + at);
}

void RequireHeader(std::span<const std::byte> bytes, uint64_t size_bytes,
                   uint32_t signature, uint64_t offset_bytes) {
  if (bytes.size() < size_bytes || Load32(bytes, 0) != signature) {
    Fail(offset_bytes, "a zip header is missing or damaged");
  }
}

// The body of the ZIP64 extra field; empty if there is none.
std::span<const std::byte> FindZip64(std::span<const std::byte> extra,
                                     uint64_t offset_bytes) {
  std::span<const std::byte> found;
  while (extra.size() >= 4) {
    const size_t size = Load16(extra, 2);
    if (size > extra.size() - 4) {
      Fail(offset_bytes, "a zip extra field leaves its header");
    }
    if (Load16(extra, 0) == kZip64ExtraId) {
      found = extra.subspan(4, size);
    }
    extra = extra.subspan(4 + size);
  }
  // Fewer than 4 bytes left are alignment padding of some writers.
  return found;
}

// Takes the next 8 bytes of the ZIP64 field where `value` is saturated.
void Widen(std::span<const std::byte>& zip64, uint64_t& value,
           uint64_t offset_bytes) {
  if (value != kSaturated) {
    return;
  }
  if (zip64.size() < 8) {
    Fail(offset_bytes, "a zip header lacks its ZIP64 field");
  }
  value = LoadLittleEndian<uint64_t>(zip64.data());
  zip64 = zip64.subspan(8);
}

std::string_view NameAt(std::span<const std::byte> bytes, size_t at,
                        size_t size) {
  return {reinterpret_cast<const char*>(bytes.data() + at), size};
}

}  // namespace

ZipEntry ParseCentralHeader(std::span<const std::byte> bytes,
                            uint64_t offset_bytes) {
  RequireHeader(bytes, kCentralHeaderBytes, kCentralSignature, offset_bytes);
  const size_t name_size = Load16(bytes, 28);
  const size_t extra_size = Load16(bytes, 30);
  ZipEntry entry;
  entry.flags = Load16(bytes, 8);
  entry.method = Load16(bytes, 10);
  entry.crc32 = Load32(bytes, 16);
  entry.compressed_bytes = Load32(bytes, 20);
  entry.size_bytes = Load32(bytes, 24);
  entry.header_offset_bytes = Load32(bytes, 42);
  entry.total_bytes =
      kCentralHeaderBytes + name_size + extra_size + Load16(bytes, 32);
  if (entry.total_bytes > bytes.size()) {
    Fail(offset_bytes, "a zip directory entry leaves the directory");
  }
  entry.name = NameAt(bytes, kCentralHeaderBytes, name_size);
  std::span<const std::byte> zip64 = FindZip64(
      bytes.subspan(kCentralHeaderBytes + name_size, extra_size), offset_bytes);
  Widen(zip64, entry.size_bytes, offset_bytes);
  Widen(zip64, entry.compressed_bytes, offset_bytes);
  Widen(zip64, entry.header_offset_bytes, offset_bytes);
  if (Load16(bytes, 34) != 0) {
    throw Error(ErrorCode::kUnsupported, "a zip archive of several disks",
                {.offset_bytes = offset_bytes});
  }
  return entry;
}

ZipEntry ParseLocalHeader(std::span<const std::byte> bytes,
                          uint64_t offset_bytes) {
  RequireHeader(bytes, kLocalHeaderBytes, kLocalSignature, offset_bytes);
  const size_t name_size = Load16(bytes, 26);
  const size_t extra_size = Load16(bytes, 28);
  ZipEntry entry;
  entry.flags = Load16(bytes, 6);
  entry.method = Load16(bytes, 8);
  entry.crc32 = Load32(bytes, 14);
  entry.compressed_bytes = Load32(bytes, 18);
  entry.size_bytes = Load32(bytes, 22);
  entry.total_bytes = kLocalHeaderBytes + name_size + extra_size;
  if (entry.total_bytes > bytes.size()) {
    Fail(offset_bytes, "a zip header leaves the file");
  }
  entry.name = NameAt(bytes, kLocalHeaderBytes, name_size);
  std::span<const std::byte> zip64 = FindZip64(
      bytes.subspan(kLocalHeaderBytes + name_size, extra_size), offset_bytes);
  if (!zip64.empty()) {
    Widen(zip64, entry.size_bytes, offset_bytes);
    Widen(zip64, entry.compressed_bytes, offset_bytes);
  }
  return entry;
}

uint64_t LocalHeaderTailBytes(std::span<const std::byte> fixed_part) {
  return uint64_t{Load16(fixed_part, 26)} + Load16(fixed_part, 28);
}

}  // namespace muonstore::torchfile
