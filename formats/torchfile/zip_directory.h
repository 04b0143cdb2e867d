// The records of a zip archive that torch.save wrote.
//
// What: reads the central directory and every local header; payloads are not
//   touched. Records are stored, never compressed, and share one root folder.
// Ownership: plain values. Threads: immutable after reading.
// Failures: Error with the offset: kDataLoss where headers contradict each
//   other, records overlap, lie outside of the file or occur twice;
//   kUnsupported for compressed or encrypted records. Nothing is allocated by a
//   count that the directory's own size does not bear out.

#ifndef MUONSTORE_FORMATS_TORCHFILE_ZIP_DIRECTORY_H_
#define MUONSTORE_FORMATS_TORCHFILE_ZIP_DIRECTORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/torchfile/memory_budget.h"
#include "formats/torchfile/record_info.h"
#include "muonstore/file_system.h"

namespace muonstore::torchfile {

class ZipDirectory {
 public:
  static ZipDirectory Read(RandomAccessFile& file, MemoryBudget& budget);

  // The folder that all records are in, with its slash.
  const std::string& root() const { return root_; }
  // In the order of the directory; names without the root.
  const std::vector<RecordInfo>& records() const { return records_; }
  std::vector<RecordInfo> TakeRecords() && { return std::move(records_); }
  // Index of a record by name.
  std::optional<uint32_t> Find(std::string_view name) const;

 private:
  void SortNames();

  std::string root_;
  std::vector<RecordInfo> records_;
  std::vector<uint32_t> by_name_;
};

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_ZIP_DIRECTORY_H_
