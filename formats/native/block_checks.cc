#include "formats/native/block_checks.h"

#include <algorithm>
#include <iterator>

namespace muonstore::native {

void BlockChecks::Ranges::Add(uint64_t begin, uint64_t end) {
  auto at = ends.upper_bound(begin);
  if (at != ends.begin() && std::prev(at)->second >= begin) {
    --at;
  }
  while (at != ends.end() && at->first <= end) {
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    num_bytes -= at->second - at->first;
    at = ends.erase(at);
  }
  ends.emplace(begin, end);
  num_bytes += end - begin;
}

bool BlockChecks::Add(BlockId block, uint64_t begin, uint64_t end,
                      uint64_t size) {
  const std::lock_guard lock(mutex_);
  if (whole_.contains(block)) {
    return false;
  }
  if (num_parts_ > kMaxParts) {  // Read here and there: begin anew.
    read_.clear();
    num_parts_ = 0;
  }
  Ranges& ranges = read_[block];
  num_parts_ -= ranges.ends.size();
  ranges.Add(begin, end);
  if (size - ranges.num_bytes <= kRestBytes) {
    read_.erase(block);
    return true;
  }
  num_parts_ += ranges.ends.size();
  return false;
}

void BlockChecks::SetWhole(BlockId block) {
  const std::lock_guard lock(mutex_);
  whole_.insert(block);
}

}  // namespace muonstore::native
