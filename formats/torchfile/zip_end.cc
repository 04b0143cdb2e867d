#include "formats/torchfile/zip_end.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/torchfile/little_endian.h"
#include "formats/torchfile/zip_signatures.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kEnd64Bytes = 56;
constexpr uint64_t kLocatorBytes = 20;
constexpr uint64_t kMaxCommentBytes = 0xFFFF;

[[noreturn]] void Fail(ErrorCode code, uint64_t offset_bytes,
                       std::string message, std::string expected = {},
                       std::string found = {}) {
  throw Error(code, std::move(message),
              {.offset_bytes = offset_bytes,
               .expected = std::move(expected),
               .found = std::move(found)});
}

// The fixed part of the end record, without its comment.
struct EndRecord {
  uint64_t offset_bytes = 0;
  uint16_t disk = 0;
  uint16_t directory_disk = 0;
  uint16_t num_on_disk = 0;
  uint16_t num_records = 0;
  uint32_t directory_size = 0;
  uint32_t directory_offset = 0;
};

EndRecord ParseEnd(const std::byte* bytes, uint64_t offset_bytes) {
  return {.offset_bytes = offset_bytes,
          .disk = LoadLittleEndian<uint16_t>(bytes + 4),
          .directory_disk = LoadLittleEndian<uint16_t>(bytes + 6),
          .num_on_disk = LoadLittleEndian<uint16_t>(bytes + 8),
          .num_records = LoadLittleEndian<uint16_t>(bytes + 10),
          .directory_size = LoadLittleEndian<uint32_t>(bytes + 12),
          .directory_offset = LoadLittleEndian<uint32_t>(bytes + 16)};
}

// Searches backwards for an end record whose comment ends with the file.
EndRecord FindEnd(RandomAccessFile& file) {
  const uint64_t size = file.size_bytes();
  const uint64_t tail_size = std::min(size, kEndBytes + kMaxCommentBytes);
  std::vector<std::byte> tail(tail_size);
  file.ReadAt(size - tail_size, tail);
  std::optional<uint64_t> stray;
  for (uint64_t left = kEndBytes; left <= tail_size; ++left) {
    const std::byte* const at = tail.data() + (tail_size - left);
    if (LoadLittleEndian<uint32_t>(at) != kEndSignature) {
      continue;
    }
    const uint64_t end = kEndBytes + LoadLittleEndian<uint16_t>(at + 20);
    if (end == left) {
      return ParseEnd(at, size - left);
    }
    if (end < left && !stray.has_value()) {
      stray = size - left + end;
    }
  }
  if (stray.has_value()) {
    Fail(ErrorCode::kDataLoss, *stray,
         "bytes follow the end of the zip archive: it was written over a "
         "longer file or badly copied",
         "the end of the file", StrCat(size - *stray, " more bytes"));
  }
  Fail(ErrorCode::kDataLoss, size,
       "the zip archive has no end record: the file was cut or not written "
       "to its end");
}

void RequireOneDisk(bool one_disk, uint64_t offset_bytes) {
  if (!one_disk) {
    Fail(ErrorCode::kUnsupported, offset_bytes,
         "a zip archive of several disks");
  }
}

// A field of the old end record repeats the ZIP64 one, or says "see there".
template <typename T>
void RequireMatch(T narrow, uint64_t wide, uint64_t offset_bytes) {
  const T saturated = static_cast<T>(~T{0});
  if (narrow != saturated && narrow != wide) {
    Fail(ErrorCode::kDataLoss, offset_bytes,
         "the two end records of the zip archive disagree", StrCat(wide),
         StrCat(narrow));
  }
}

// The ZIP64 end record at `offset_bytes`, which must end at the locator.
ZipEnd ReadEnd64(RandomAccessFile& file, uint64_t offset_bytes,
                 uint64_t locator_offset) {
  if (offset_bytes > locator_offset ||
      locator_offset - offset_bytes < kEnd64Bytes) {
    Fail(ErrorCode::kDataLoss, locator_offset,
         "the zip archive's ZIP64 end record is not where its locator says");
  }
  std::array<std::byte, kEnd64Bytes> end{};
  file.ReadAt(offset_bytes, end);
  const auto rest = LoadLittleEndian<uint64_t>(end.data() + 4);
  if (LoadLittleEndian<uint32_t>(end.data()) != kEnd64Signature ||
      rest != locator_offset - offset_bytes - 12) {
    Fail(ErrorCode::kDataLoss, offset_bytes,
         "the zip archive's ZIP64 end record is damaged");
  }
  const auto num_on_disk = LoadLittleEndian<uint64_t>(end.data() + 24);
  const ZipEnd result{
      .directory_offset_bytes = LoadLittleEndian<uint64_t>(end.data() + 48),
      .directory_size_bytes = LoadLittleEndian<uint64_t>(end.data() + 40),
      .num_records = LoadLittleEndian<uint64_t>(end.data() + 32)};
  RequireOneDisk(LoadLittleEndian<uint32_t>(end.data() + 16) == 0 &&
                     LoadLittleEndian<uint32_t>(end.data() + 20) == 0 &&
                     num_on_disk == result.num_records,
                 offset_bytes);
  return result;
}

void CheckDirectoryRange(const ZipEnd& end, uint64_t end_records_offset) {
  const bool fits = end.directory_offset_bytes <= end_records_offset &&
                    end.directory_size_bytes ==
                        end_records_offset - end.directory_offset_bytes;
  if (!fits) {
    Fail(ErrorCode::kDataLoss, end_records_offset,
         "the zip archive's directory does not end at its end record: bytes "
         "were lost, or added before the archive",
         StrCat("bytes ", end.directory_offset_bytes, " + ",
                end.directory_size_bytes),
         StrCat(end_records_offset));
  }
}

}  // namespace

ZipEnd ReadZipEnd(RandomAccessFile& file) {
  if (file.size_bytes() < kEndBytes) {
    Fail(ErrorCode::kDataLoss, file.size_bytes(),
         "the file is too short for a zip archive: it was cut");
  }
  const EndRecord end = FindEnd(file);
  std::array<std::byte, kLocatorBytes> locator{};
  if (end.offset_bytes >= kLocatorBytes) {
    file.ReadAt(end.offset_bytes - kLocatorBytes, locator);
  }
  if (LoadLittleEndian<uint32_t>(locator.data()) != kLocator64Signature) {
    RequireOneDisk(end.disk == 0 && end.directory_disk == 0 &&
                       end.num_on_disk == end.num_records,
                   end.offset_bytes);
    const ZipEnd result{.directory_offset_bytes = end.directory_offset,
                        .directory_size_bytes = end.directory_size,
                        .num_records = end.num_records};
    CheckDirectoryRange(result, end.offset_bytes);
    return result;
  }
  const uint64_t locator_offset = end.offset_bytes - kLocatorBytes;
  RequireOneDisk(LoadLittleEndian<uint32_t>(locator.data() + 4) == 0 &&
                     LoadLittleEndian<uint32_t>(locator.data() + 16) <= 1,
                 locator_offset);
  const auto end64_offset = LoadLittleEndian<uint64_t>(locator.data() + 8);
  const ZipEnd result = ReadEnd64(file, end64_offset, locator_offset);
  RequireMatch(end.num_on_disk, result.num_records, end.offset_bytes);
  RequireMatch(end.num_records, result.num_records, end.offset_bytes);
  RequireMatch(end.directory_size, result.directory_size_bytes,
               end.offset_bytes);
  RequireMatch(end.directory_offset, result.directory_offset_bytes,
               end.offset_bytes);
  CheckDirectoryRange(result, end64_offset);
  return result;
}

}  // namespace muonstore::torchfile
