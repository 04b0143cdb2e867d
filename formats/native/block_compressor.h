// Compresses blocks on several threads and gives them back in order.
//
// Ownership: owns the blocks. Destroying it waits for its threads.
// Threads: one caller.
// Failures: Next() throws what CompressBlock threw. Where no thread can be
//   started, Start() compresses by itself.
#ifndef MUONSTORE_FORMATS_NATIVE_BLOCK_COMPRESSOR_H_
#define MUONSTORE_FORMATS_NATIVE_BLOCK_COMPRESSOR_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <vector>

namespace muonstore::native {

class BlockCompressor {
 public:
  // The bytes that `num_threads` blocks on their way take: what comes in, its
  // shuffled form, and what comes out.
  static constexpr uint64_t kBytesPerBlockByte = 3;

  BlockCompressor(int level, int32_t num_threads)
      : level_(level), num_threads_(num_threads) {}

  // Every thread has a block: take one back before the next Start().
  bool full() const {
    return blocks_.size() >= static_cast<size_t>(num_threads_);
  }
  bool empty() const { return blocks_.empty(); }

  void Start(std::vector<std::byte> block, size_t element_bytes);
  // The stored form of the block that was started first.
  std::vector<std::byte> Next();

 private:
  int level_;
  int32_t num_threads_;
  std::deque<std::future<std::vector<std::byte>>> blocks_;
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_BLOCK_COMPRESSOR_H_
