// What is lost when a 64-bit integer is widened to double.
//
// What: value = widened + rest, exactly, so that integers beyond 2^53 can be
//   compared with each other and with floating-point numbers.
// Ownership, threads: pure functions.
// Failures: none.

#ifndef MUONSTORE_SRC_INSPECT_WIDENING_REST_H_
#define MUONSTORE_SRC_INSPECT_WIDENING_REST_H_

#include <cstddef>
#include <span>
#include <vector>

#include "muonstore/dtype.h"

namespace muonstore {

// `widened` is what ConvertToF64 gave for `bytes`. Empty where nothing is lost.
std::vector<double> RestsOfWidening(DType dtype,
                                    std::span<const std::byte> bytes,
                                    std::span<const double> widened);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_INSPECT_WIDENING_REST_H_
