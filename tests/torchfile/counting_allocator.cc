#include "tests/torchfile/counting_allocator.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<uint64_t> in_use{0};  // NOLINT: operator new has no other place.
std::atomic<uint64_t> peak{0};    // NOLINT

void* Allocate(size_t size) {
  void* const block = std::malloc(size);
  if (block == nullptr) {
    throw std::bad_alloc();
  }
  const uint64_t now = in_use += malloc_usable_size(block);
  uint64_t highest = peak.load();
  while (now > highest && !peak.compare_exchange_weak(highest, now)) {
  }
  return block;
}

void Free(void* block) noexcept {
  if (block != nullptr) {
    in_use -= malloc_usable_size(block);
    std::free(block);
  }
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void operator delete(void* block) noexcept { Free(block); }
void operator delete[](void* block) noexcept { Free(block); }
void operator delete(void* block, size_t /*size*/) noexcept { Free(block); }
void operator delete[](void* block, size_t /*size*/) noexcept { Free(block); }

namespace muonstore::torchfile {

uint64_t StartPeak() {
  peak = in_use.load();
  return in_use;
}

uint64_t PeakBytes() { return peak; }

}  // namespace muonstore::torchfile
