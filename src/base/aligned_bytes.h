// Memory that starts at a multiple of a page, for transfers around the page
// cache. Its content is not defined at first.
#ifndef MUONSTORE_SRC_BASE_ALIGNED_BYTES_H_
#define MUONSTORE_SRC_BASE_ALIGNED_BYTES_H_

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace muonstore {

class AlignedBytes {
 public:
  static constexpr size_t kAlignment = 4096;

  AlignedBytes() = default;
  // std::bad_alloc where there is no memory.
  explicit AlignedBytes(size_t size) : size_(size) {
    const size_t whole = (size + kAlignment - 1) / kAlignment * kAlignment;
    bytes_.reset(
        static_cast<std::byte*>(std::aligned_alloc(kAlignment, whole)));
    if (bytes_ == nullptr && whole > 0) throw std::bad_alloc();
  }

  std::byte* data() const { return bytes_.get(); }
  size_t size() const { return size_; }
  std::span<std::byte> span() const { return {bytes_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };

  std::unique_ptr<std::byte, Free> bytes_;
  size_t size_ = 0;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_BASE_ALIGNED_BYTES_H_
