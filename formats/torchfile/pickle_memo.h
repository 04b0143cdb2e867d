// The memo of a pickle: values by number.
//
// What: picklers number values 0, 1, 2, ... (old ones from 1), so most of them
//   live in a deque; numbers far ahead go to a map.
// Ownership: borrows the budget. Threads: one thread.
// Failures: Error(kResourceExhausted) from the budget.

#ifndef MUONSTORE_FORMATS_TORCHFILE_PICKLE_MEMO_H_
#define MUONSTORE_FORMATS_TORCHFILE_PICKLE_MEMO_H_

#include <cstdint>
#include <deque>
#include <unordered_map>

#include "formats/torchfile/memory_budget.h"
#include "formats/torchfile/value_tree.h"

namespace muonstore::torchfile {

class PickleMemo {
 public:
  explicit PickleMemo(MemoryBudget& budget) : budget_(budget) {}

  // kNoNode if nothing was put there.
  NodeId Get(uint64_t index) const {
    if (index < dense_.size() && dense_[index] != kNoNode) {
      return dense_[index];
    }
    const auto found = sparse_.find(index);
    return found == sparse_.end() ? kNoNode : found->second;
  }

  void Put(uint64_t index, NodeId id) {
    num_entries_ += Get(index) == kNoNode ? 1 : 0;
    if (index < dense_.size() + kMaxGap) {
      while (dense_.size() <= index) {
        budget_.PushBack(dense_, kNoNode);
      }
      dense_[index] = id;
      return;
    }
    if (!sparse_.contains(index)) {
      budget_.Charge(kMapNodeBytes);
    }
    sparse_[index] = id;
  }

  // MEMOIZE puts at the number of entries.
  uint64_t num_entries() const { return num_entries_; }

 private:
  static constexpr uint64_t kMaxGap = 16;
  static constexpr uint64_t kMapNodeBytes = 64;

  MemoryBudget& budget_;
  std::deque<NodeId> dense_;
  std::unordered_map<uint64_t, NodeId> sparse_;
  uint64_t num_entries_ = 0;
};

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_PICKLE_MEMO_H_
