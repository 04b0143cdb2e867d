// A file written by torch.save: zip container or legacy stream.
//
// What: Open() reads the directory and the pickle, never a payload; tensor
//   bytes are read by range when asked for. Nothing in the file is executed.
// Ownership: a TorchFile owns its value tree, not an open descriptor: it opens
//   the file for each read through the FileSystem that it was given, so that
//   thousands of them cost no descriptors.
// Threads: immutable after Open, but for what record_checks.h keeps; reads may
//   run on many threads.
// Failures: Error with the file: kDataLoss (cut, damaged, contradictory),
//   kUnsupported (compressed record, sparse or quantized tensor, TorchScript,
//   tar file, a callable that is refused), kNotFound, kUnavailable.
//   Sizes are checked against the file before anything is allocated.

#ifndef MUONSTORE_FORMATS_TORCHFILE_TORCH_FILE_H_
#define MUONSTORE_FORMATS_TORCHFILE_TORCH_FILE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/torchfile/contents.h"
#include "formats/torchfile/record_checks.h"
#include "formats/torchfile/record_info.h"
#include "formats/torchfile/value.h"
#include "muonstore/error.h"
#include "muonstore/file_system.h"

namespace muonstore::torchfile {

class TorchFile {
 public:
  static std::shared_ptr<const TorchFile> Open(std::shared_ptr<FileSystem> fs,
                                               const std::string& path);

  const std::string& path() const { return path_; }
  uint64_t file_size_bytes() const { return file_size_bytes_; }
  bool is_zip() const { return contents_.is_zip; }
  // The zip's root folder: the file's name without ".pt" as it was saved, or
  // "archive"; empty for a legacy stream.
  const std::string& archive_root() const { return contents_.archive_root; }
  bool is_big_endian() const { return contents_.is_big_endian; }
  const ValueTree& tree() const { return contents_.tree; }
  Value root() const { return Value(tree(), tree().root); }
  const std::vector<RecordInfo>& records() const { return contents_.records; }

  // The root as a dict (a checkpoint or state dict); Error(kUnsupported) that
  // says what else the file holds, such as a whole pickled module.
  Value RequireDict() const;

  // Reads `out.size() / SizeBytes(dtype)` elements of the tensor, in row-major
  // order of its shape, from element `first_element`; strides, offsets, lazy
  // conjugation and negation and byte order are resolved. Little-endian out.
  // Uses about 1 MiB beside `out`, whatever the storage's size. A range outside
  // of the tensor is Error(kInvalidArgument). A zip record's CRC-32 is compared
  // once all of it was read, but for 64 KiB (record_checks.h):
  // Error(kDataLoss).
  void ReadElements(const TensorInfo& tensor, int64_t first_element,
                    std::span<std::byte> out) const;

  // Whether the file at `path` holds the same values as this one, but for the
  // bytes of its storages, which are not looked at: told in the time of reading
  // it, a fraction of that of opening it. False as well where it cannot be told
  // (a legacy stream, a damaged file): Open says why.
  bool HasTwinAt(const std::string& path) const;

  // Reads every byte of every record and compares its CRC-32, and the sizes and
  // CRC that follow the data once more. (That headers agree and that storages
  // have their records was proven by Open.) Returns all faults, the empty list
  // when whole; `place().tensor` lists tensors over a damaged storage by their
  // path ("/module/w"). `on_bytes` is told the number of bytes read so far, in
  // steps. A legacy stream has no checksums: its bytes are only read.
  std::vector<Error> Verify(
      const std::function<void(uint64_t bytes)>& on_bytes = {}) const;

 private:
  struct Passkey {};

 public:
  TorchFile(Passkey, std::shared_ptr<FileSystem> fs, std::string path,
            uint64_t file_size_bytes, Contents contents);

 private:
  void VerifyRecord(RandomAccessFile& file, uint32_t record,
                    const std::function<void(uint64_t bytes)>& on_block,
                    std::vector<Error>& faults) const;
  std::string TensorsOver(uint32_t record) const;

  std::shared_ptr<FileSystem> fs_;
  std::string path_;
  uint64_t file_size_bytes_ = 0;
  Contents contents_;
  mutable RecordChecks checks_;
};

// True if the first bytes look like a torch file (zip or pickle); reads at most
// a few bytes and never throws for content.
bool LooksLikeTorchFile(RandomAccessFile& file);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_TORCH_FILE_H_
