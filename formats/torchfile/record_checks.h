// Compares records with their CRC-32 although they are read in parts.
//
// What: keeps the CRC of every part that passed by and joins neighbours, in
//   whatever order they come. Once no more than kRestBytes of a record are
//   missing, it reads these and compares. So a small record is checked by its
//   first read, and a large one when nearly all of it was read.
// Ownership: borrows the records. A record takes a few words for each gap in
//   what was read, of at most kMaxParts.
// Threads: Add() on many threads.
// Failures: Error(kDataLoss) for a damaged record; those of the file.
#ifndef MUONSTORE_FORMATS_TORCHFILE_RECORD_CHECKS_H_
#define MUONSTORE_FORMATS_TORCHFILE_RECORD_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <unordered_map>

#include "formats/torchfile/record_info.h"
#include "muonstore/file_system.h"

namespace muonstore::torchfile {

class RecordChecks {
 public:
  static constexpr uint64_t kRestBytes = uint64_t{64} << 10;
  static constexpr size_t kMaxParts = 1024;

  explicit RecordChecks(std::span<const RecordInfo> records)
      : records_(records) {}

  // `bytes` are those of the record from `begin` on, as read from `file`; none
  // for a read of another order. Parts that were seen before are left out.
  void Add(RandomAccessFile& file, uint32_t record, uint64_t begin,
           std::span<const std::byte> bytes);

 private:
  struct Part {
    uint64_t end = 0;
    uint32_t crc = 0;
  };
  struct Progress {
    std::map<uint64_t, Part> parts;  // By begin; neighbours are joined.
    uint64_t num_bytes = 0;
    // Compared, or in too many parts.
    bool is_over = false;
  };

  bool IsOver(uint32_t record);
  static void Insert(Progress& progress, uint64_t begin, const Part& part);
  void ReadRest(RandomAccessFile& file, const RecordInfo& record,
                Progress& progress) const;
  void Compare(const RecordInfo& record, Progress& progress) const;

  std::span<const RecordInfo> records_;
  std::mutex mutex_;
  std::unordered_map<uint32_t, Progress> progress_;
};

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_RECORD_CHECKS_H_
