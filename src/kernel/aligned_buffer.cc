#include "src/kernel/aligned_buffer.h"

#include <sys/mman.h>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;

int64_t AlignmentOf(int64_t size_bytes) {
  return size_bytes >= kHugePageBytes ? kHugePageBytes : kVectorBytes;
}

}  // namespace

int64_t AlignedBuffer::RoundedBytes(int64_t size_bytes) {
  const int64_t alignment = AlignmentOf(size_bytes);
  return (size_bytes + alignment - 1) / alignment * alignment;
}

void AlignedBuffer::Reserve(int64_t size_bytes) {
  if (size_bytes <= size_bytes_) {
    return;
  }
  Release();
  const int64_t alignment = AlignmentOf(size_bytes);
  const int64_t rounded = RoundedBytes(size_bytes);
  bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(
      static_cast<size_t>(alignment), static_cast<size_t>(rounded))));
  if (bytes_ == nullptr) {
    throw Error(ErrorCode::kResourceExhausted,
                "there is no memory for a workspace",
                {.expected = StrCat(rounded, " bytes")});
  }
  if (alignment == kHugePageBytes) {
    // Only advice: small pages work too.
    static_cast<void>(
        madvise(bytes_.get(), static_cast<size_t>(rounded), MADV_HUGEPAGE));
  }
  size_bytes_ = rounded;
}

void AlignedBuffer::Release() {
  bytes_.reset();
  size_bytes_ = 0;
}

}  // namespace muonstore
