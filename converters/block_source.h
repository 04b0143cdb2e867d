// The blocks of a target's segment, the next one being read while one is used.
//
// Ownership: keeps references to source and segment; two blocks and a reader.
// Threads: one caller; a thread of its own while a block is read ahead, where
//   the OS gives it one.
// Failures: Next() throws what SegmentReader throws.

#ifndef MUONSTORE_CONVERTERS_BLOCK_SOURCE_H_
#define MUONSTORE_CONVERTERS_BLOCK_SOURCE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <future>
#include <span>
#include <vector>

#include "converters/segment_reader.h"
#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"
#include "src/base/aligned_bytes.h"

namespace muonstore {

class BlockSource {
 public:
  // `block_bytes` has room for an element of any dtype.
  BlockSource(const Checkpoint& source, const SinkSegment& segment,
              size_t block_bytes);

  bool done() const { return next_element_ >= segment_.num_elements; }
  // The next block; it stays until the next call.
  std::span<const std::byte> Next();
  // Of that block.
  std::span<const SegmentReader::Overflow> overflows() const {
    return overflows_;
  }

 private:
  void Start(std::launch how);
  std::span<std::byte> Read(int64_t first_element, AlignedBytes& memory);

  const SinkSegment& segment_;
  SegmentReader reader_;
  int64_t elements_of_block_;
  int64_t next_element_ = 0;   // Of the block that Next() gives.
  int64_t ahead_element_ = 0;  // Of the block that is read.
  std::array<AlignedBytes, 2> memory_;
  std::vector<SegmentReader::Overflow> overflows_;
  std::future<std::span<std::byte>> ahead_;
};

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_BLOCK_SOURCE_H_
