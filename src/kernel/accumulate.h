// Folding the gradients of micro-batches into an f32 accumulator.
//
// Bits: the same for an element whatever range it is passed in.
// Ownership: views; chunk and accumulator must not overlap. The chunk's bytes
//   need no alignment.
// Threads: pure; call from many threads on disjoint ranges.
// Failures: Error(kInvalidArgument) for sizes that do not fit,
//   Error(kUnsupported) for a dtype other than f32, bf16 and f16.

#ifndef MUONSTORE_SRC_KERNEL_ACCUMULATE_H_
#define MUONSTORE_SRC_KERNEL_ACCUMULATE_H_

#include <cstddef>
#include <span>

#include "muonstore/dtype.h"

namespace muonstore {

enum class AccumulateMode {
  kSet,  // accumulator = float(chunk): the first micro-batch. Exact.
  kAdd,  // accumulator = accumulator + float(chunk), rounded once to f32.
};

// `chunk` holds accumulator.size() packed elements of `dtype`.
void AccumulateGradient(DType dtype, std::span<const std::byte> chunk,
                        AccumulateMode mode, std::span<float> accumulator);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_ACCUMULATE_H_
