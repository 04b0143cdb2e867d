#include "formats/torchfile/zip_records.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "formats/torchfile/zip_entry.h"
#include "formats/torchfile/zip_signatures.h"

namespace muonstore::torchfile {
namespace {

constexpr uint16_t kFlags = 0x0808;  // Data descriptor, names in UTF-8.
constexpr uint16_t kZip64Id = 1;
constexpr uint16_t kPaddingId = 0x4246;  // "FB".
constexpr uint64_t kExtraHeaderBytes = 4;
constexpr uint64_t kZip64SizesBytes = kExtraHeaderBytes + 16;
constexpr uint64_t kSaturatedField = std::numeric_limits<uint32_t>::max();
constexpr uint16_t kVersionMadeBy = 0x031e;
constexpr uint16_t kVersionNeeded = 45;

class Bytes {
 public:
  template <typename T>
  Bytes& Add(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  // 4 bytes, all ones where the number needs 8.
  Bytes& Add32(uint64_t value) {
    return Add(static_cast<uint32_t>(std::min(value, kSaturatedField)));
  }
  Bytes& Add16(uint64_t value) {
    return Add(static_cast<uint16_t>(
        std::min<uint64_t>(value, std::numeric_limits<uint16_t>::max())));
  }
  Bytes& Text(std::string_view text) {
    text_ += text;
    return *this;
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

bool IsLarge(const ZipRecordPlan& record) {
  return record.size_bytes >= kSaturatedField;
}

// Up to the padding's own header, which is always there.
uint64_t HeaderBytes(const ZipRecordPlan& record) {
  return kLocalHeaderBytes + record.name.size() +
         (IsLarge(record) ? kZip64SizesBytes : 0) + kExtraHeaderBytes;
}

}  // namespace

ZipRecordPlan PlaceRecord(std::string name, uint64_t size_bytes,
                          uint64_t header_offset_bytes) {
  ZipRecordPlan record{std::move(name), size_bytes, header_offset_bytes, 0, 0};
  const uint64_t begin = header_offset_bytes + HeaderBytes(record);
  record.data_offset_bytes = (begin + kStorageAlignmentBytes - 1) /
                             kStorageAlignmentBytes * kStorageAlignmentBytes;
  return record;
}

uint64_t EndOfRecord(const ZipRecordPlan& record) {
  return record.data_offset_bytes + record.size_bytes +
         (IsLarge(record) ? 24 : 16);
}

std::string LocalHeader(const ZipRecordPlan& record) {
  const uint64_t padding = record.data_offset_bytes -
                           record.header_offset_bytes - HeaderBytes(record);
  const uint64_t size32 = IsLarge(record) ? kSaturatedField : 0;
  Bytes bytes;
  bytes.Add(kLocalSignature).Add(uint16_t{0}).Add(kFlags).Add(uint16_t{0});
  bytes.Add(uint32_t{0}).Add(uint32_t{0});  // Time and date, CRC-32.
  bytes.Add32(size32).Add32(size32).Add16(record.name.size());
  bytes.Add16((IsLarge(record) ? kZip64SizesBytes : 0) + kExtraHeaderBytes +
              padding);
  bytes.Text(record.name);
  if (IsLarge(record)) {
    bytes.Add(kZip64Id).Add(uint16_t{16});
    bytes.Add(record.size_bytes).Add(record.size_bytes);
  }
  bytes.Add(kPaddingId).Add16(padding).Text(std::string(padding, 'Z'));
  return bytes.Take();
}

std::string DataDescriptor(const ZipRecordPlan& record) {
  Bytes bytes;
  bytes.Add(kDescriptorSignature).Add(record.crc32);
  if (IsLarge(record)) {
    bytes.Add(record.size_bytes).Add(record.size_bytes);
  } else {
    bytes.Add32(record.size_bytes).Add32(record.size_bytes);
  }
  return bytes.Take();
}

std::string CentralHeader(const ZipRecordPlan& record) {
  const bool is_far = record.header_offset_bytes >= kSaturatedField;
  Bytes zip64;
  if (IsLarge(record)) {
    zip64.Add(record.size_bytes).Add(record.size_bytes);
  }
  if (is_far) {
    zip64.Add(record.header_offset_bytes);
  }
  const std::string wide = zip64.Take();
  const uint64_t extra = wide.empty() ? 0 : kExtraHeaderBytes + wide.size();
  Bytes bytes;
  bytes.Add(kCentralSignature).Add(uint32_t{0});  // Versions.
  bytes.Add(kFlags).Add(uint16_t{0}).Add(uint32_t{0}).Add(record.crc32);
  bytes.Add32(record.size_bytes).Add32(record.size_bytes);
  bytes.Add16(record.name.size()).Add16(extra).Add(uint16_t{0});
  bytes.Add(uint32_t{0}).Add(uint32_t{0});  // Disk, attributes.
  bytes.Add32(record.header_offset_bytes).Text(record.name);
  if (!wide.empty()) {
    bytes.Add(kZip64Id).Add16(wide.size()).Text(wide);
  }
  return bytes.Take();
}

std::string EndRecords(uint64_t num_records, uint64_t directory_offset_bytes,
                       uint64_t directory_size_bytes) {
  constexpr uint64_t kEnd64RestBytes = 44;
  Bytes bytes;
  bytes.Add(kEnd64Signature).Add(kEnd64RestBytes);
  bytes.Add(kVersionMadeBy).Add(kVersionNeeded);
  bytes.Add(uint64_t{0});  // Disks.
  bytes.Add(num_records).Add(num_records);
  bytes.Add(directory_size_bytes).Add(directory_offset_bytes);
  bytes.Add(kLocator64Signature).Add(uint32_t{0});
  bytes.Add(directory_offset_bytes + directory_size_bytes).Add(uint32_t{1});
  bytes.Add(kEndSignature).Add(uint32_t{0});
  bytes.Add16(num_records).Add16(num_records);
  bytes.Add32(directory_size_bytes).Add32(directory_offset_bytes);
  bytes.Add(uint16_t{0});
  return bytes.Take();
}

}  // namespace muonstore::torchfile
