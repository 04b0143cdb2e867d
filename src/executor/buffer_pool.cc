#include "src/executor/buffer_pool.h"

#include <algorithm>

#include "muonstore/error.h"

namespace muonstore {

BufferPool::BufferPool(Tier& tier, const BufferPoolOptions& options)
    : num_buffers_(options.num_buffers), buffer_bytes_(options.buffer_bytes) {
  if (num_buffers_ == 0) return;
  arena_ =
      tier.CreateArena({.name = options.name,
                        .block_bytes = std::vector<uint64_t>(
                            static_cast<size_t>(num_buffers_), buffer_bytes_),
                        .pinning = options.pinning});
  for (int32_t i = 0; i < num_buffers_; ++i) free_.push_back(i);
}

void BufferPool::Publish(Communicator& communicator) {
  if (arena_ == nullptr) return;
  communicator.Publish(*arena_);
  communicator_ = &communicator;
}

BufferPool::~BufferPool() {
  if (communicator_ == nullptr) return;
  try {
    communicator_->Withdraw(*arena_);
  } catch (const std::exception&) {
    // A peer may be gone; the memory goes anyway.
  }
}

int32_t BufferPool::Acquire() {
  if (free_.empty()) {
    throw Error(ErrorCode::kInternal, "all buffers of a pool are in use");
  }
  const int32_t buffer = free_.front();
  free_.pop_front();
  peak_bytes_ =
      std::max(peak_bytes_, static_cast<uint64_t>(num_buffers_ - num_free()) *
                                buffer_bytes_);
  return buffer;
}

void BufferPool::Return(int32_t buffer) { free_.push_back(buffer); }

std::span<std::byte> BufferPool::bytes(int32_t buffer) const {
  return arena_->memory(buffer, 0);
}

std::span<std::byte> BufferPool::all_memory() const {
  return arena_ == nullptr ? std::span<std::byte>() : arena_->all_memory();
}

}  // namespace muonstore
