// Where the pieces of a tensor lie.
//
// What: a fragment maps a strided run of a tensor's elements (row-major order)
//   to a contiguous range of one segment. ZeRO cuts have count 1; a box of a
//   sharded mesh is one fragment with a row per count.
// Ownership, threads: plain values.

#ifndef MUONSTORE_FRAGMENT_H_
#define MUONSTORE_FRAGMENT_H_

#include <cstdint>

namespace muonstore {

// Elements tensor_offset + i * stride + j of the tensor, for i < count and
// j < length, are elements segment_offset + i * length + j of segment
// `segment`. All values count elements; length and count are at least 1 and
// stride >= length where count > 1.
struct Fragment {
  int64_t tensor_offset = 0;
  int64_t length = 0;
  int64_t count = 1;
  int64_t stride = 0;
  int32_t segment = 0;  // Index into the owner's list of segments.
  int64_t segment_offset = 0;

  int64_t num_elements() const { return length * count; }

  friend bool operator==(const Fragment&, const Fragment&) = default;
};

}  // namespace muonstore

#endif  // MUONSTORE_FRAGMENT_H_
