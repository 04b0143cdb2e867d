#include "converters/block_source.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace muonstore {

BlockSource::BlockSource(const Checkpoint& source, const SinkSegment& segment,
                         size_t block_bytes)
    : segment_(segment),
      reader_(source),
      elements_of_block_(static_cast<int64_t>(block_bytes) /
                         SizeBytes(segment.dtype)) {}

std::span<std::byte> BlockSource::Read(int64_t first_element,
                                       AlignedBytes& memory) {
  const int64_t count =
      std::min(elements_of_block_, segment_.num_elements - first_element);
  const auto size = static_cast<size_t>(count * SizeBytes(segment_.dtype));
  // Whole pages, so that reads can go around the page cache.
  if (memory.size() < size) memory = AlignedBytes(size);
  const auto block = memory.span().first(size);
  reader_.Read(segment_, first_element, block);
  return block;
}

void BlockSource::Start(std::launch how) {
  const auto read = [this, at = ahead_element_] {
    return Read(at, memory_[static_cast<size_t>(at / elements_of_block_ % 2)]);
  };
  try {
    ahead_ = std::async(how, read);
  } catch (const std::system_error&) {
    // No thread: it is read when it is asked for.
    ahead_ = std::async(std::launch::deferred, read);
  }
  ahead_element_ += elements_of_block_;
}

std::span<const std::byte> BlockSource::Next() {
  if (!ahead_.valid()) Start(std::launch::deferred);
  const std::span<std::byte> block = ahead_.get();
  overflows_.assign(reader_.overflows().begin(), reader_.overflows().end());
  next_element_ = ahead_element_;
  if (!done()) Start(std::launch::async);
  return block;
}

}  // namespace muonstore
