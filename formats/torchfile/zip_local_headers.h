// Local headers: where each record's data begins.
#ifndef MUONSTORE_FORMATS_TORCHFILE_ZIP_LOCAL_HEADERS_H_
#define MUONSTORE_FORMATS_TORCHFILE_ZIP_LOCAL_HEADERS_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "formats/torchfile/record_info.h"
#include "muonstore/file_system.h"

namespace muonstore::torchfile {

// Fills in `offset_bytes` of all records from their local headers, which must
// say what the directory says; records must lie before the directory and must
// not overlap. Neighbouring headers are read together.
void ReadLocalHeaders(RandomAccessFile& file, std::string_view root,
                      uint64_t directory_offset_bytes,
                      std::span<const uint64_t> header_offsets,
                      std::span<RecordInfo> records);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_ZIP_LOCAL_HEADERS_H_
