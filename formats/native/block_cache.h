// The blocks that were needed in parts last, and which blocks were compared
// with their checksums.
//
// What: neighbours in a file share blocks: whoever needs a part of one reads
//   all of it, and the next one finds it here. Threads that need a block at
//   one time share its load.
// Ownership: owns at most `max_blocks` blocks; what Get() gave stays while it
//   is held.
// Threads: any.
// Failures: Get() throws what `load` throws, to all who wait for that load; the
//   next call loads again.
#ifndef MUONSTORE_FORMATS_NATIVE_BLOCK_CACHE_H_
#define MUONSTORE_FORMATS_NATIVE_BLOCK_CACHE_H_

#include <cstddef>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "src/base/aligned_bytes.h"

namespace muonstore::native {

class BlockCache {
 public:
  using BlockId = std::pair<size_t, size_t>;  // Segment, block.
  using Bytes = std::shared_ptr<const AlignedBytes>;

  explicit BlockCache(size_t max_blocks) : max_blocks_(max_blocks) {}

  // `load` reads the block and compares it.
  Bytes Get(BlockId id, const std::function<AlignedBytes()>& load);
  // Get() is the way to parts of this block: it is here or being loaded, or
  // it was never compared. What was compared and is gone again is used here and
  // there: parts of it are better read alone.
  bool IsTheWay(BlockId id) const;
  // It was, by a load or by the caller.
  void SetCompared(BlockId id);

 private:
  struct Entry {
    BlockId id;
    std::shared_future<Bytes> bytes;
  };

  std::list<Entry>::const_iterator Find(BlockId id) const;
  std::shared_future<Bytes> Use(BlockId id);
  void Insert(Entry entry);
  void Forget(BlockId id);

  const size_t max_blocks_;
  mutable std::mutex mutex_;  // Of what follows.
  std::list<Entry> entries_;  // The one used last is first.
  std::set<BlockId> compared_;
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_BLOCK_CACHE_H_
