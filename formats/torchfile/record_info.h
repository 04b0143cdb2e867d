// One stretch of raw bytes of a torch file.
#ifndef MUONSTORE_FORMATS_TORCHFILE_RECORD_INFO_H_
#define MUONSTORE_FORMATS_TORCHFILE_RECORD_INFO_H_

#include <cstdint>
#include <string>

namespace muonstore::torchfile {

// One record of the zip container, or one storage of a legacy stream.
struct RecordInfo {
  std::string name;           // "data.pkl", "data/0": without the root folder.
  uint64_t offset_bytes = 0;  // Of the data in the file.
  uint64_t size_bytes = 0;
  uint32_t crc32 = 0;
  bool has_crc = false;         // A legacy stream has none.
  bool has_descriptor = false;  // Zip: sizes and CRC follow the data again.
};

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_RECORD_INFO_H_
