// The zip structures that a writer needs, as bytes; torch.save's own forms.
//
// What: records are stored, their sizes are known before, their CRC-32 only
//   after: local headers say zero and a data descriptor follows the data. Data
//   begins at a multiple of 64 bytes: an extra field "FB" pads the local
//   header.
// Ownership: plain values. Threads: pure functions. Failures: none.

#ifndef MUONSTORE_FORMATS_TORCHFILE_ZIP_RECORDS_H_
#define MUONSTORE_FORMATS_TORCHFILE_ZIP_RECORDS_H_

#include <cstdint>
#include <span>
#include <string>

namespace muonstore::torchfile {

inline constexpr uint64_t kStorageAlignmentBytes = 64;

// One record of an archive that is being written.
struct ZipRecordPlan {
  std::string name;  // With the root folder.
  uint64_t size_bytes = 0;
  uint64_t header_offset_bytes = 0;
  uint64_t data_offset_bytes = 0;
  uint32_t crc32 = 0;  // Known once the data is written.
};

// Places a record whose local header begins at `header_offset_bytes`.
ZipRecordPlan PlaceRecord(std::string name, uint64_t size_bytes,
                          uint64_t header_offset_bytes);
// Where the next local header, or the directory, begins.
uint64_t EndOfRecord(const ZipRecordPlan& record);

std::string LocalHeader(const ZipRecordPlan& record);
std::string DataDescriptor(const ZipRecordPlan& record);
std::string CentralHeader(const ZipRecordPlan& record);
// ZIP64 end record and locator, and the end record.
std::string EndRecords(uint64_t num_records, uint64_t directory_offset_bytes,
                       uint64_t directory_size_bytes);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_ZIP_RECORDS_H_
