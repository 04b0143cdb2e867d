// Work on several threads, and progress told from them.
//
// Threads: ParallelFor starts its own and joins them before it returns.
// Failures: what the body throws, once; also what the progress callback throws.

#ifndef MUONSTORE_SRC_INSPECT_PARALLEL_H_
#define MUONSTORE_SRC_INSPECT_PARALLEL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

namespace muonstore {

using ProgressCallback =
    std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

// Calls body(i) for every i < count on up to `jobs` threads, in order of i; on
// fewer where the OS refuses to start them, the calling one at least.
// After an exception no further i is started; that of the smallest i is
// rethrown.
void ParallelFor(size_t count, int32_t jobs,
                 const std::function<void(size_t)>& body);

// Adds up bytes from many threads; one callback at a time.
class ByteProgress {
 public:
  // `callback` may be empty.
  ByteProgress(ProgressCallback callback, uint64_t total_bytes)
      : callback_(std::move(callback)), total_bytes_(total_bytes) {}

  void Add(uint64_t bytes);

 private:
  std::mutex mutex_;
  ProgressCallback callback_;
  uint64_t total_bytes_;
  uint64_t done_bytes_ = 0;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_INSPECT_PARALLEL_H_
