// Which blocks were compared with their checksums, and how much of the others
// was read.
//
// What: reads of parts of a block are added up. Once no more than kRestBytes of
//   it are missing, the block is due: its reader reads it whole and compares.
//   So a small block is checked by its first read, and a large one when nearly
//   all of it was read.
// Ownership: plain values; a few words for each gap in what was read of a
//   block, in all at most kMaxParts.
// Threads: Add() on many threads. Failures: none.
#ifndef MUONSTORE_FORMATS_NATIVE_BLOCK_CHECKS_H_
#define MUONSTORE_FORMATS_NATIVE_BLOCK_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace muonstore::native {

class BlockChecks {
 public:
  static constexpr uint64_t kRestBytes = uint64_t{64} << 10;
  static constexpr size_t kMaxParts = size_t{1} << 17;

  using BlockId = std::pair<size_t, size_t>;  // Segment, block.

  // Bytes [begin, end) of a block of `size` bytes were read. True: it is due.
  bool Add(BlockId block, uint64_t begin, uint64_t end, uint64_t size);
  // The block is what its checksum says.
  void SetWhole(BlockId block);

 private:
  struct Ranges {
    std::map<uint64_t, uint64_t> ends;  // By begin; disjoint.
    uint64_t num_bytes = 0;

    void Add(uint64_t begin, uint64_t end);
  };

  std::mutex mutex_;
  std::set<BlockId> whole_;
  std::map<BlockId, Ranges> read_;
  size_t num_parts_ = 0;
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_BLOCK_CHECKS_H_
