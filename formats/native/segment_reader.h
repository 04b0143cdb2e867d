// Reads ranges of segments, plain or compressed, and checks blocks.
//
// What: every block is compared with its checksum before any byte of it is
//   given: a block that is needed in part is read whole the first time, and
//   kept for its neighbours. Large reads have several requests under way, and
//   go around the page cache where file and memory lie alike.
// Ownership: keeps a reference to the TagFiles; a few open files; the blocks
//   that were needed in parts last, 16 MiB or two blocks of them.
// Threads: Read on many threads at once.
// Failures: Error(kDataLoss) with file, offset and block; kInvalidArgument for
//   a range outside of the segment.
#ifndef MUONSTORE_FORMATS_NATIVE_SEGMENT_READER_H_
#define MUONSTORE_FORMATS_NATIVE_SEGMENT_READER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/native/block_cache.h"
#include "formats/native/open_files.h"
#include "formats/native/tag_files.h"
#include "src/base/aligned_bytes.h"

namespace muonstore::native {

// The error of a damaged block.
Error BlockDamage(const TagFiles& tag, size_t segment, size_t block,
                  uint64_t found_digest);

class SegmentReader {
 public:
  // `tag` has blocks and outlives the reader.
  explicit SegmentReader(const TagFiles& tag);

  void Read(size_t segment, int64_t first_element,
            std::span<std::byte> out) const;

 private:
  using BlockId = BlockCache::BlockId;
  // What a read takes of one block.
  struct Part {
    BlockId id;
    uint64_t begin = 0;  // Bytes into the block.
    std::span<std::byte> out;
    bool is_whole = false;
    bool is_direct = false;  // Read straight to `out`.
    PendingPtr read;         // Where that is under way.
  };

  std::vector<Part> Split(size_t segment, uint64_t begin,
                          std::span<std::byte> out) const;
  void ReadPlain(RandomAccessFile& file, std::vector<Part> parts) const;
  void ReadCompressed(RandomAccessFile& file,
                      const std::vector<Part>& parts) const;
  static size_t BytesOf(const std::vector<Part>& parts);
  static void Copy(const Part& part, const BlockCache::Bytes& block);
  const Block& BlockOf(BlockId id) const;
  uint64_t BlockBytes(BlockId id) const;
  // What is stored of it, once it is decompressed: all compressed blocks of a
  // segment have one size.
  uint64_t ChunkBytes(BlockId id) const;
  AlignedBytes LoadPlain(RandomAccessFile& file, BlockId id) const;
  void Decompress(RandomAccessFile& file, BlockId id,
                  std::span<std::byte> out) const;
  void Compare(BlockId id, std::span<const std::byte> stored) const;

  const TagFiles& tag_;
  mutable OpenFiles files_;
  mutable BlockCache cache_;
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_SEGMENT_READER_H_
