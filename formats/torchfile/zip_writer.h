// Writes planned zip records one after the other.
//
// What: sequential and buffered; computes each record's CRC-32 on the way.
// Ownership: borrows the file; neither syncs nor closes it.
// Threads: one thread.
// Failures: what the file throws; Error(kInternal) for data that does not fill
//   its record.

#ifndef MUONSTORE_FORMATS_TORCHFILE_ZIP_WRITER_H_
#define MUONSTORE_FORMATS_TORCHFILE_ZIP_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "formats/torchfile/zip_records.h"
#include "muonstore/file_system.h"

namespace muonstore::torchfile {

class ZipWriter {
 public:
  ZipWriter(WritableFile& file, std::vector<ZipRecordPlan> records);

  const std::vector<ZipRecordPlan>& records() const { return records_; }
  // The record that is being filled, or the one to begin next.
  size_t current() const { return current_; }
  uint64_t remaining_bytes() const;

  // The next bytes of the current record, which begins and ends by itself.
  void Append(std::span<const std::byte> data);
  // A whole record.
  void AppendText(std::string_view text);
  // Behind the last record.
  void Finish();

 private:
  void Begin();
  void End();
  void Write(std::span<const std::byte> data);
  void Flush();

  WritableFile& file_;
  std::vector<ZipRecordPlan> records_;
  size_t current_ = 0;
  bool is_begun_ = false;
  uint64_t done_bytes_ = 0;      // Of the current record.
  uint64_t position_bytes_ = 0;  // Of what is in the file.
  std::vector<std::byte> buffer_;
};

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_ZIP_WRITER_H_
