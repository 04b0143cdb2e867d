#include "formats/native/block_cache.h"

#include <algorithm>

namespace muonstore::native {

BlockCache::Bytes BlockCache::Get(BlockId id,
                                  const std::function<AlignedBytes()>& load) {
  std::promise<Bytes> promise;
  std::shared_future<Bytes> loaded;
  {
    const std::lock_guard lock(mutex_);
    loaded = Use(id);
    if (!loaded.valid()) Insert({id, promise.get_future().share()});
  }
  if (loaded.valid()) return loaded.get();
  try {
    auto bytes = std::make_shared<const AlignedBytes>(load());
    SetCompared(id);
    promise.set_value(bytes);
    return bytes;
  } catch (...) {
    Forget(id);
    promise.set_exception(std::current_exception());
    throw;
  }
}

bool BlockCache::IsTheWay(BlockId id) const {
  const std::lock_guard lock(mutex_);
  return !compared_.contains(id) || Find(id) != entries_.end();
}

void BlockCache::SetCompared(BlockId id) {
  const std::lock_guard lock(mutex_);
  compared_.insert(id);
}

std::list<BlockCache::Entry>::const_iterator BlockCache::Find(
    BlockId id) const {
  return std::find_if(entries_.begin(), entries_.end(),
                      [&](const Entry& entry) { return entry.id == id; });
}

std::shared_future<BlockCache::Bytes> BlockCache::Use(BlockId id) {
  const auto found = Find(id);
  if (found == entries_.end()) return {};
  entries_.splice(entries_.begin(), entries_, found);
  return entries_.front().bytes;
}

void BlockCache::Insert(Entry entry) {
  entries_.push_front(std::move(entry));
  if (entries_.size() > max_blocks_) entries_.pop_back();
}

void BlockCache::Forget(BlockId id) {
  const std::lock_guard lock(mutex_);
  entries_.remove_if([&](const Entry& entry) { return entry.id == id; });
}

}  // namespace muonstore::native
