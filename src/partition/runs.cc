#include "src/partition/runs.h"

#include <algorithm>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

// Whether the ends in the tensor and in the segment fit into 64 bits.
bool EndsFit(const Fragment& fragment) {
  int64_t span = 0;
  int64_t size = 0;
  int64_t end = 0;
  return !__builtin_mul_overflow(fragment.count - 1, fragment.stride, &span) &&
         !__builtin_add_overflow(span, fragment.length, &span) &&
         !__builtin_add_overflow(span, fragment.tensor_offset, &end) &&
         !__builtin_mul_overflow(fragment.count, fragment.length, &size) &&
         !__builtin_add_overflow(size, fragment.segment_offset, &end);
}

bool IsWellFormed(const Fragment& fragment) {
  return fragment.tensor_offset >= 0 && fragment.segment_offset >= 0 &&
         fragment.length >= 1 && fragment.count >= 1 &&
         (fragment.count == 1 || fragment.stride >= fragment.length) &&
         EndsFit(fragment);
}

// Orders a heap so that the smallest begin is at its front.
bool StartsLater(const Run& a, const Run& b) {
  return a.begin != b.begin ? a.begin > b.begin : a.fragment > b.fragment;
}

}  // namespace

void CheckFragments(std::span<const Fragment> fragments) {
  for (const Fragment& fragment : fragments) {
    if (!IsWellFormed(fragment)) {
      throw Error(
          ErrorCode::kInvalidArgument,
          StrCat("malformed fragment: tensor offset ", fragment.tensor_offset,
                 ", length ", fragment.length, ", count ", fragment.count,
                 ", stride ", fragment.stride, ", segment offset ",
                 fragment.segment_offset));
    }
  }
}

RunStream::RunStream(std::span<const Fragment> fragments)
    : fragments_(fragments) {
  heap_.reserve(fragments.size());
  for (size_t i = 0; i < fragments.size(); ++i) {
    const int64_t begin = fragments[i].tensor_offset;
    heap_.push_back({.begin = begin,
                     .end = begin + fragments[i].length,
                     .fragment = i,
                     .index = 0});
  }
  std::make_heap(heap_.begin(), heap_.end(), StartsLater);
}

void RunStream::Pop() {
  std::pop_heap(heap_.begin(), heap_.end(), StartsLater);
  Run& run = heap_.back();
  const Fragment& fragment = fragments_[run.fragment];
  ++run.index;
  if (run.index == fragment.count) {
    heap_.pop_back();
    return;
  }
  run.begin += fragment.stride;
  run.end += fragment.stride;
  std::push_heap(heap_.begin(), heap_.end(), StartsLater);
}

void AppendRange(std::vector<ElementRange>& ranges, ElementRange range) {
  if (range.begin >= range.end) {
    return;
  }
  if (!ranges.empty() && range.begin <= ranges.back().end) {
    ranges.back().end = std::max(ranges.back().end, range.end);
  } else {
    ranges.push_back(range);
  }
}

}  // namespace muonstore
