// The end of a zip file: where its central directory is.
#ifndef MUONSTORE_FORMATS_TORCHFILE_ZIP_END_H_
#define MUONSTORE_FORMATS_TORCHFILE_ZIP_END_H_

#include <cstdint>

#include "muonstore/file_system.h"

namespace muonstore::torchfile {

struct ZipEnd {
  uint64_t directory_offset_bytes = 0;
  uint64_t directory_size_bytes = 0;
  uint64_t num_records = 0;
};

// Reads the end-of-central-directory record and, where there is one, its ZIP64
// form. The file must end with the former: bytes after it mean that a shorter
// file was written over a longer one, or that a copy went wrong. The directory
// must end where the end records begin. Error(kDataLoss), Error(kUnsupported)
// for archives of several disks.
ZipEnd ReadZipEnd(RandomAccessFile& file);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_ZIP_END_H_
