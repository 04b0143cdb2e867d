// Zip files of torch.save that differ in the bytes of storages alone.
//
// Threads: reads both files. Failures: those of reading.
#ifndef MUONSTORE_FORMATS_TORCHFILE_ZIP_TWIN_H_
#define MUONSTORE_FORMATS_TORCHFILE_ZIP_TWIN_H_

#include <vector>

#include "formats/torchfile/record_info.h"
#include "muonstore/file_system.h"

namespace muonstore::torchfile {

// `records` are those of `file`, which was opened as a zip and is whole. True
// where `other` has records of the same names and sizes in the same order, and
// the same bytes in all that are no storages and no serialization id: to parse
// it would give the same values. False also for what is no sound zip.
bool IsZipTwin(RandomAccessFile& file, const std::vector<RecordInfo>& records,
               RandomAccessFile& other);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_ZIP_TWIN_H_
