// Reads ranges of segments, plain or compressed, and checks blocks.
//
// What: a compressed block is compared with its checksum always, a plain one
//   when a read covers it wholly or reads of its parts have covered it, but for
//   64 KiB (block_checks.h). Large reads have several requests under way, and
//   go around the page cache where file and memory lie alike.
// Ownership: keeps a reference to the TagFiles; a few open files; one
//   decompressed block, so that small reads in a row do not decompress it
//   again.
// Threads: Read on many threads at once.
// Failures: Error(kDataLoss) with file, offset and block; kInvalidArgument for
//   a range outside of the segment.
#ifndef MUONSTORE_FORMATS_NATIVE_SEGMENT_READER_H_
#define MUONSTORE_FORMATS_NATIVE_SEGMENT_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "formats/native/block_checks.h"
#include "formats/native/open_files.h"
#include "formats/native/tag_files.h"

namespace muonstore::native {

// The error of a damaged block.
Error BlockDamage(const TagFiles& tag, size_t segment, size_t block,
                  uint64_t found_digest);

class SegmentReader {
 public:
  // `tag` has blocks and outlives the reader.
  explicit SegmentReader(const TagFiles& tag) : tag_(tag), files_(*tag.fs) {}

  void Read(size_t segment, int64_t first_element,
            std::span<std::byte> out) const;

 private:
  using BlockBytes = std::shared_ptr<const std::vector<std::byte>>;

  void ReadPlain(size_t segment, uint64_t begin,
                 std::span<std::byte> out) const;
  // The same for more than one request.
  void ReadLarge(RandomAccessFile& file, size_t segment, uint64_t begin,
                 std::span<std::byte> out) const;
  // Compares the blocks of bytes [begin, begin + out.size()) where that is due.
  void CheckPlain(RandomAccessFile& file, size_t segment, uint64_t begin,
                  std::span<const std::byte> out) const;
  void CheckWholePlain(RandomAccessFile& file, size_t segment,
                       size_t block) const;
  void ReadCompressed(size_t segment, uint64_t begin,
                      std::span<std::byte> out) const;
  BlockBytes Decompressed(RandomAccessFile& file, size_t segment,
                          size_t block) const;

  const TagFiles& tag_;
  mutable OpenFiles files_;
  mutable BlockChecks checks_;
  mutable std::mutex mutex_;  // Of what follows.
  mutable size_t cached_segment_ = 0;
  mutable size_t cached_block_ = 0;
  mutable BlockBytes cached_;
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_SEGMENT_READER_H_
