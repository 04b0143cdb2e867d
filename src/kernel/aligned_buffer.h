// Memory for matrices: aligned for vectors, in huge pages where it is large.
//
// Ownership: a buffer owns its bytes; it is move-only.
// Threads: as a plain value.
// Failures: Error(kResourceExhausted) naming the size.

#ifndef MUONSTORE_SRC_KERNEL_ALIGNED_BUFFER_H_
#define MUONSTORE_SRC_KERNEL_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace muonstore {

inline constexpr int64_t kVectorBytes = 64;

class AlignedBuffer {
 public:
  int64_t size_bytes() const { return size_bytes_; }
  std::byte* data() { return bytes_.get(); }

  // What Reserve takes for a size: whole huge pages where it is large.
  static int64_t RoundedBytes(int64_t size_bytes);

  // Afterwards at least `size_bytes` are there, with no defined content.
  void Reserve(int64_t size_bytes);
  void Release();

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };

  std::unique_ptr<std::byte, Free> bytes_;
  int64_t size_bytes_ = 0;
};

// Hands out aligned parts of a block of memory, or counts what they would take
// when there is none.
class Carver {
 public:
  explicit Carver(std::byte* bytes) : bytes_(bytes) {}

  template <typename T>
  T* Take(int64_t count) {
    const int64_t start = used_bytes_;
    const int64_t size = count * static_cast<int64_t>(sizeof(T));
    used_bytes_ += (size + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
    return bytes_ == nullptr ? nullptr : reinterpret_cast<T*>(bytes_ + start);
  }

  int64_t used_bytes() const { return used_bytes_; }

 private:
  std::byte* bytes_;
  int64_t used_bytes_ = 0;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_ALIGNED_BUFFER_H_
