// Cuts ranges into slices that threads share.

#ifndef MUONSTORE_SRC_EXECUTOR_SLICES_H_
#define MUONSTORE_SRC_EXECUTOR_SLICES_H_

#include <algorithm>
#include <cstdint>

#include "muonstore/thread_pool.h"

namespace muonstore {

// Small enough to balance, large enough not to count; element-wise passes give
// the same bits for any cut.
inline constexpr int64_t kSliceElements = int64_t{1} << 16;

inline int64_t NumSlices(int64_t num_elements) {
  return (num_elements + kSliceElements - 1) / kSliceElements;
}

// Calls body(first, count, slice) for every slice of [0, num_elements).
template <typename Body>
void ForEachSlice(ThreadPool& pool, int64_t num_elements, const Body& body) {
  pool.ParallelFor(NumSlices(num_elements), [&](int64_t slice) {
    const int64_t first = slice * kSliceElements;
    body(first, std::min(kSliceElements, num_elements - first), slice);
  });
}

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_SLICES_H_
