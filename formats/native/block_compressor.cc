#include "formats/native/block_compressor.h"

#include <memory>
#include <system_error>
#include <utility>

#include "formats/native/block_codec.h"

namespace muonstore::native {

void BlockCompressor::Start(std::vector<std::byte> block,
                            size_t element_bytes) {
  const auto bytes =
      std::make_shared<const std::vector<std::byte>>(std::move(block));
  const auto compress = [bytes, element_bytes, level = level_] {
    return CompressBlock(*bytes, element_bytes, level);
  };
  if (num_threads_ > 1) {
    try {
      blocks_.push_back(std::async(std::launch::async, compress));
      return;
    } catch (const std::system_error&) {
      // The caller does it, like one that may use no thread.
    }
  }
  blocks_.push_back(std::async(std::launch::deferred, compress));
}

std::vector<std::byte> BlockCompressor::Next() {
  std::vector<std::byte> stored = blocks_.front().get();
  blocks_.pop_front();
  return stored;
}

}  // namespace muonstore::native
