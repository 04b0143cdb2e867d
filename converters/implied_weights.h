// Are the weights that a target does not store those that it implies?
//
// What: a target may hold round(master) in place of a source's own weight.
//   Each is compared while its master is on the way to the target, so that the
//   weight is all that is read in addition.
// Memory: two buffers of at most the size of the block that is looked at.
// Ownership: keeps references to source and plan.
// Threads: Compare() may run on many threads at once.
// Failures: what reading the source throws.

#ifndef MUONSTORE_CONVERTERS_IMPLIED_WEIGHTS_H_
#define MUONSTORE_CONVERTERS_IMPLIED_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "converters/value_losses.h"
#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"
#include "muonstore/convert.h"

namespace muonstore {

class ImpliedWeights {
 public:
  // Of the block, for a weight and its rounded master.
  static constexpr uint64_t kScratchPerByte = 2;

  ImpliedWeights(const Checkpoint& source, const ConversionPlan& plan);

  // Whether masters of such weights are in the segment.
  bool Concern(const SinkSegment& segment) const;
  // `block` holds the segment's elements from `first_element` on.
  void Compare(const SinkSegment& segment, int64_t first_element,
               std::span<const std::byte> block, ValueLosses& losses) const;

 private:
  // Elements of a master.
  struct Part {
    size_t master;
    size_t weight;
    ElementRange range;
    DType dtype;  // Of the bytes.
  };
  void ComparePart(const Part& part, std::span<const std::byte> bytes,
                   ValueLosses& losses) const;

  const Checkpoint& source_;
  std::unordered_map<size_t, size_t> weight_of_;  // By master.
};

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_IMPLIED_WEIGHTS_H_
