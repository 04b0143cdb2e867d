// Writes a draft as torch.save does (zip container, torch 2.x).
//
// What: TorchFilePlan pickles a draft and places every record, without I/O, so
//   that sizes and offsets are known before a byte is written. TorchFileWriter
//   writes the file from front to back: the caller gives the bytes of the
//   storages that the draft declared, in order and in any pieces; storages that
//   were copied from other files are streamed from there, and their CRC-32 is
//   compared with the source's.
// Ownership: a plan keeps the copied storages' files open and needs the draft
// no
//   longer; a writer borrows the file, which it neither syncs nor closes.
// Threads: each object belongs to one thread.
// Failures: Error(kUnsupported) for what pickle cannot say; Error(kDataLoss)
//   where a copied storage is damaged; Error(kInternal) for bytes out of order;
//   what the files throw.

#ifndef MUONSTORE_FORMATS_TORCHFILE_TORCH_FILE_WRITER_H_
#define MUONSTORE_FORMATS_TORCHFILE_TORCH_FILE_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/torchfile/draft.h"
#include "formats/torchfile/zip_records.h"
#include "formats/torchfile/zip_writer.h"
#include "muonstore/file_system.h"

namespace muonstore::torchfile {

// A storage whose bytes the caller gives.
struct StorageSegment {
  uint32_t storage = 0;  // Index into the draft's tree().storages.
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;  // Never 0.
};

class TorchFilePlan {
 public:
  // `archive_root` is the zip's folder; torch takes the file's name without
  // ".pt". The same draft and root give the same bytes.
  TorchFilePlan(const Draft& draft, const std::string& archive_root);

  // In the order of the file. Storages that no value reaches are not written.
  const std::vector<StorageSegment>& segments() const { return segments_; }
  uint64_t file_size_bytes() const { return file_size_bytes_; }

 private:
  friend class TorchFileWriter;

  void Add(const std::string& name, uint64_t size_bytes);

  std::string folder_;  // Root and slash.
  std::string pickle_;
  std::vector<ZipRecordPlan> records_;
  std::vector<uint32_t> storages_;      // By key.
  std::vector<StorageSource> sources_;  // By key.
  std::vector<StorageSegment> segments_;
  uint64_t file_size_bytes_ = 0;
};

class TorchFileWriter {
 public:
  TorchFileWriter(WritableFile& file, TorchFilePlan plan);

  // The next bytes of the plan's segments, one after the other.
  void WriteStorage(uint32_t storage, std::span<const std::byte> bytes);
  // Once, after the last segment.
  void Finish();

 private:
  void WriteHead();
  // Records up to the next one that the caller fills.
  void WriteOwnRecords();
  void CopyStorage(const StorageSource& source);
  size_t CurrentKey() const;

  TorchFilePlan plan_;
  ZipWriter zip_;
  std::string path_;
};

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_TORCH_FILE_WRITER_H_
