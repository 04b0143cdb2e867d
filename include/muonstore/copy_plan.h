// The one operation that moves state: intersect two fragment lists, copy.
//
// What: gather, scatter, save, load, convert and partial reads are all a copy
//   from the fragments of a source to the fragments of a destination of the
//   same tensor. A plan lists the copies and proves, before any runs, that
//   every destination element is written exactly once.
// Ownership: plain values.
// Threads: pure functions.
// Failures: Error(kDataLoss) with the first uncovered or doubly covered
//   element range; Error(kInvalidArgument) for a malformed fragment or range.
// Cost: O(runs * log(fragments)) time; memory grows with the fragments and with
//   what is returned, never with runs or elements alone.

#ifndef MUONSTORE_COPY_PLAN_H_
#define MUONSTORE_COPY_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "muonstore/fragment.h"

namespace muonstore {

// Copies `count` runs of `length` elements: run i from element source_offset +
// i * source_stride of the source segment to element dest_offset + i *
// dest_stride of the destination segment. Strides are at least `length`; both
// are 0 where count is 1.
struct CopyOp {
  int32_t source_segment = 0;
  int32_t dest_segment = 0;
  int64_t source_offset = 0;
  int64_t dest_offset = 0;
  int64_t length = 0;
  int64_t count = 1;
  int64_t source_stride = 0;
  int64_t dest_stride = 0;

  friend bool operator==(const CopyOp&, const CopyOp&) = default;
};

// A half-open range of a tensor's elements in row-major order.
struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

// What a fragment list leaves open of [0, num_elements), and what it holds
// twice or more; ascending, merged ranges.
struct Coverage {
  std::vector<ElementRange> missing;
  std::vector<ElementRange> overlapping;
  std::vector<ElementRange> outside;  // Beyond the tensor.

  bool complete() const {
    return missing.empty() && overlapping.empty() && outside.empty();
  }
};
Coverage CheckCoverage(std::span<const Fragment> fragments,
                       int64_t num_elements);

// Fragments that hold exactly [range.begin, range.end) of the given list, with
// segment offsets moved accordingly. A strided fragment gives up to three: a
// cut first run, whole runs, a cut last run.
std::vector<Fragment> Restrict(std::span<const Fragment> fragments,
                               ElementRange range);

// The copies that fill `dest` from `source`. Every element of `dest` must lie
// in exactly one source fragment and in exactly one destination fragment;
// source elements outside of `dest` are left out. Ascending by destination
// segment and offset; neighbours are merged, also into strided runs.
std::vector<CopyOp> PlanCopy(std::span<const Fragment> source,
                             std::span<const Fragment> dest);

}  // namespace muonstore

#endif  // MUONSTORE_COPY_PLAN_H_
