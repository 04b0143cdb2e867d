// Buffers that matrices are gathered into, or state is staged in.
//
// What: a fixed number of equal buffers in one arena, so that peers can read
//   them in place; handed out least recently used first. What is in use is
//   counted, and its peak reported.
// Ownership: owns the arena until Release.
// Threads: one at a time. Publish is collective.

#ifndef MUONSTORE_SRC_EXECUTOR_BUFFER_POOL_H_
#define MUONSTORE_SRC_EXECUTOR_BUFFER_POOL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "muonstore/communicator.h"
#include "muonstore/tier.h"

namespace muonstore {

struct BufferPoolOptions {
  std::string name;  // For messages and reports.
  int32_t num_buffers = 0;
  uint64_t buffer_bytes = 0;
  Pinning pinning = Pinning::kTry;
};

class BufferPool {
 public:
  // `tier` is memory.
  BufferPool(Tier& tier, const BufferPoolOptions& options);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Lets peers read the buffers, until the pool goes.
  void Publish(Communicator& communicator);

  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  // Index of a buffer; there must be a free one.
  int32_t Acquire();
  void Return(int32_t buffer);
  std::span<std::byte> bytes(int32_t buffer) const;
  std::span<std::byte> all_memory() const;

  uint64_t peak_bytes() const { return peak_bytes_; }

 private:
  Communicator* communicator_ = nullptr;  // Where it is published.
  int32_t num_buffers_;
  uint64_t buffer_bytes_;
  std::unique_ptr<Arena> arena_;
  std::deque<int32_t> free_;  // The least recently used first.
  uint64_t peak_bytes_ = 0;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_BUFFER_POOL_H_
