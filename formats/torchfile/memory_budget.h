// A cap on what opening one file may allocate.
//
// What: a hostile pickle can ask for much more memory than it has bytes (shared
//   values, copied strings). Everything that grows with the input is charged
//   here before it is allocated; the cap is the file's size plus a constant.
// Ownership: a plain counter; owns no memory.
// Threads: belongs to the thread that opens the file.
// Failures: Error(kResourceExhausted) when the cap is reached.

#ifndef MUONSTORE_FORMATS_TORCHFILE_MEMORY_BUDGET_H_
#define MUONSTORE_FORMATS_TORCHFILE_MEMORY_BUDGET_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {

class MemoryBudget {
 public:
  // Of the 64 MiB that a reader may use beyond the file's size, some are left
  // to the process itself and the allocator's overhead.
  static constexpr uint64_t kSpareBytes = uint64_t{58} << 20;

  explicit MemoryBudget(uint64_t file_size_bytes)
      : limit_bytes_(file_size_bytes + kSpareBytes) {}

  uint64_t used_bytes() const { return used_bytes_; }

  void Charge(uint64_t bytes) {
    if (bytes > limit_bytes_ - used_bytes_) {
      throw Error(ErrorCode::kResourceExhausted,
                  StrCat("the file's structure asks for more memory than its "
                         "size plus ",
                         kSpareBytes >> 20, " MiB; refused as hostile"));
    }
    used_bytes_ += bytes;
  }
  void Release(uint64_t bytes) { used_bytes_ -= std::min(bytes, used_bytes_); }

  // Makes room for `extra` more elements; charges the peak, when the old and
  // the new buffer both exist.
  template <typename T>
  void Grow(std::vector<T>& vector, size_t extra = 1) {
    const size_t needed = vector.size() + extra;
    const size_t old_capacity = vector.capacity();
    if (needed <= old_capacity) {
      return;
    }
    const size_t capacity = std::max(needed, old_capacity + old_capacity / 2);
    Charge(capacity * sizeof(T) + kAllocationBytes);
    vector.reserve(capacity);
    Release(old_capacity * sizeof(T));
  }

  template <typename T>
  void PushBack(std::vector<T>& vector, T value) {
    Grow(vector);
    vector.push_back(std::move(value));
  }
  // A deque grows in chunks of 512 bytes, each with some overhead.
  template <typename T>
  void PushBack(std::deque<T>& deque, T value) {
    Charge(sizeof(T) + sizeof(T) / 16);
    deque.push_back(std::move(value));
  }

  // A string's heap part; short ones have none.
  void ChargeText(size_t size_bytes) {
    if (size_bytes > kInlineTextBytes) {
      Charge(size_bytes + kAllocationBytes);
    }
  }

 private:
  static constexpr uint64_t kAllocationBytes = 16;
  static constexpr size_t kInlineTextBytes = 15;

  uint64_t limit_bytes_;
  uint64_t used_bytes_ = 0;
};

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_MEMORY_BUDGET_H_
