// `checksums.<save id>`: where each block of each segment is, and its checksum.
//
// What: segments are cut into blocks of the manifest's size; a record says
//   where the block's stored bytes are in the rank file and their XXH3-64.
//   Records stand segment by segment, block by block.
// Ownership: owns its records.
// Threads: const functions on many threads; Set on different segments, too.
// Failures: Error(kDataLoss) for bytes that are no table of this layout.
#ifndef MUONSTORE_FORMATS_NATIVE_BLOCK_TABLE_H_
#define MUONSTORE_FORMATS_NATIVE_BLOCK_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/native/layout.h"

namespace muonstore::native {

struct Block {
  uint64_t offset_bytes = 0;  // In the rank file.
  uint64_t stored_bytes = 0;
  uint64_t digest = 0;  // XXH3-64 of the stored bytes.
};

class BlockTable {
 public:
  // Of zeros.
  BlockTable(const Layout& layout, uint64_t block_bytes);
  // Bytes of the file that such a table fills.
  static uint64_t FileBytes(const Layout& layout, uint64_t block_bytes);

  uint64_t block_bytes() const { return block_bytes_; }
  std::span<const Block> blocks(size_t segment) const;
  void Set(size_t segment, size_t block, const Block& value);

  std::string Encode() const;
  // `text` has FileBytes() bytes.
  void Decode(const std::string& text);

 private:
  uint64_t block_bytes_;
  std::vector<size_t> first_;  // Of each segment; one more at the end.
  std::vector<Block> blocks_;
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_BLOCK_TABLE_H_
