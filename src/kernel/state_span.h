// State that a pass updates: in place, or from one generation into the next.
//
// Ownership: views of the caller's memory. `in` and `out` are the same memory
//   or do not overlap.

#ifndef MUONSTORE_SRC_KERNEL_STATE_SPAN_H_
#define MUONSTORE_SRC_KERNEL_STATE_SPAN_H_

#include <cstddef>
#include <span>
#include <vector>

namespace muonstore {

struct StateSpan {
  StateSpan() = default;
  // In place; implicit, since that is what a span says.
  // NOLINTNEXTLINE(google-explicit-constructor)
  StateSpan(std::span<float> both) : in(both), out(both) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  StateSpan(std::vector<float>& both) : in(both), out(both) {}
  StateSpan(std::span<const float> from, std::span<float> to)
      : in(from), out(to) {}

  StateSpan subspan(size_t first, size_t count) const {
    return {in.subspan(first, count), out.subspan(first, count)};
  }

  std::span<const float> in;
  std::span<float> out;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_STATE_SPAN_H_
