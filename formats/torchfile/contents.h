// What opening a torch file finds, for either container.
#ifndef MUONSTORE_FORMATS_TORCHFILE_CONTENTS_H_
#define MUONSTORE_FORMATS_TORCHFILE_CONTENTS_H_

#include <string>
#include <vector>

#include "formats/torchfile/memory_budget.h"
#include "formats/torchfile/record_info.h"
#include "formats/torchfile/value_tree.h"
#include "muonstore/file_system.h"

namespace muonstore::torchfile {

struct Contents {
  bool is_zip = true;
  std::string archive_root;  // Root folder of the zip; else empty.
  bool is_big_endian = false;
  ValueTree tree;
  std::vector<RecordInfo> records;
};

// The zip container: directory, `version`, `byteorder` and data.pkl.
Contents ReadZipContents(RandomAccessFile& file, MemoryBudget& budget);

// The legacy stream: five pickles, then the storages one after the other.
Contents ReadLegacyContents(RandomAccessFile& file, MemoryBudget& budget);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_CONTENTS_H_
