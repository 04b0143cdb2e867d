#include "formats/torchfile/zip_local_headers.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "formats/torchfile/zip_entry.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

constexpr uint64_t kWindowBytes = uint64_t{64} << 10;
// Headers that lie further apart are read one by one.
constexpr uint64_t kNearBytes = uint64_t{2} << 10;
// Enough for the headers of torch.save: name and padding to 64 bytes.
constexpr uint64_t kHeaderGuessBytes = 512;
constexpr uint64_t kMinDescriptorBytes = 12;

// Reads ahead while headers lie close together.
class HeaderWindow {
 public:
  HeaderWindow(RandomAccessFile& file, uint64_t end_bytes)
      : file_(file), end_bytes_(end_bytes) {}

  // Bytes from `offset` on, at least `size` of them unless the end is near.
  std::span<const std::byte> Get(uint64_t offset, uint64_t size,
                                 uint64_t read_ahead) {
    size = std::min(size, end_bytes_ - offset);
    const bool held = offset >= begin_bytes_ &&
                      offset + size <= begin_bytes_ + buffer_.size();
    if (!held) {
      begin_bytes_ = offset;
      buffer_.resize(std::min(std::max(size, read_ahead), end_bytes_ - offset));
      file_.ReadAt(offset, buffer_);
    }
    return std::span<const std::byte>(buffer_).subspan(offset - begin_bytes_);
  }

 private:
  RandomAccessFile& file_;
  uint64_t end_bytes_;
  uint64_t begin_bytes_ = 0;
  std::vector<std::byte> buffer_;
};

[[noreturn]] void Fail(const RecordInfo& record, uint64_t offset_bytes,
                       std::string_view message, std::string expected,
                       std::string found) {
  throw Error(ErrorCode::kDataLoss,
              StrCat("record ", Printable(record.name), " ", message),
              {.offset_bytes = offset_bytes,
               .expected = std::move(expected),
               .found = std::move(found)});
}

// With a descriptor after the data, a local header may leave numbers at zero.
void CheckAgreement(const ZipEntry& local, const RecordInfo& record,
                    std::string_view root, uint64_t offset_bytes) {
  if (local.name != StrCat(root, record.name)) {
    Fail(record, offset_bytes, "has another name in its local header",
         Printable(StrCat(root, record.name)), Printable(local.name));
  }
  if (local.method != 0 || local.is_encrypted() ||
      local.has_descriptor() != record.has_descriptor) {
    Fail(record, offset_bytes, "has another storage in its local header", "",
         "");
  }
  const auto agrees = [&](uint64_t in_header, uint64_t in_directory) {
    return in_header == in_directory ||
           (record.has_descriptor && in_header == 0);
  };
  if (!agrees(local.size_bytes, record.size_bytes) ||
      !agrees(local.compressed_bytes, record.size_bytes)) {
    Fail(record, offset_bytes, "has another size in its local header",
         StrCat(record.size_bytes), StrCat(local.size_bytes));
  }
  if (!agrees(local.crc32, record.crc32)) {
    Fail(record, offset_bytes, "has another CRC-32 in its local header",
         StrCat(record.crc32), StrCat(local.crc32));
  }
}

// The record's data and descriptor must end by `limit`.
void CheckRange(const RecordInfo& record, uint64_t header_offset,
                uint64_t limit) {
  const uint64_t tail = record.has_descriptor ? kMinDescriptorBytes : 0;
  if (record.offset_bytes > limit ||
      record.size_bytes > limit - record.offset_bytes ||
      tail > limit - record.offset_bytes - record.size_bytes) {
    Fail(record, header_offset, "overlaps the next record or the directory",
         StrCat("an end by byte ", limit),
         StrCat(record.size_bytes, " bytes from byte ", record.offset_bytes));
  }
}

}  // namespace

void ReadLocalHeaders(RandomAccessFile& file, std::string_view root,
                      uint64_t directory_offset_bytes,
                      std::span<const uint64_t> header_offsets,
                      std::span<RecordInfo> records) {
  std::vector<uint32_t> order(records.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return header_offsets[a] < header_offsets[b];
  });
  HeaderWindow window(file, directory_offset_bytes);
  for (size_t i = 0; i < order.size(); ++i) {
    RecordInfo& record = records[order[i]];
    const uint64_t header = header_offsets[order[i]];
    const uint64_t limit = i + 1 < order.size() ? header_offsets[order[i + 1]]
                                                : directory_offset_bytes;
    if (header >= directory_offset_bytes) {
      Fail(record, header, "lies outside of the archive",
           StrCat("a header before byte ", directory_offset_bytes),
           StrCat(header));
    }
    const bool next_is_near = limit - header < kNearBytes;
    const uint64_t ahead = next_is_near ? kWindowBytes : kHeaderGuessBytes;
    const auto fixed = window.Get(header, kLocalHeaderBytes, ahead);
    const uint64_t header_bytes =
        fixed.size() < kLocalHeaderBytes
            ? kLocalHeaderBytes
            : kLocalHeaderBytes + LocalHeaderTailBytes(fixed);
    const ZipEntry local =
        ParseLocalHeader(window.Get(header, header_bytes, ahead), header);
    CheckAgreement(local, record, root, header);
    record.offset_bytes = header + local.total_bytes;
    CheckRange(record, header, limit);
  }
}

}  // namespace muonstore::torchfile
