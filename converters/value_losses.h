// Losses that only values show, gathered while they pass.
//
// Threads: many may add at once.
// Failures: none.

#ifndef MUONSTORE_CONVERTERS_VALUE_LOSSES_H_
#define MUONSTORE_CONVERTERS_VALUE_LOSSES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "converters/segment_reader.h"
#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"
#include "src/tensor/value_difference.h"

namespace muonstore {

class ValueLosses {
 public:
  explicit ValueLosses(const Checkpoint& source) : source_(source) {}

  // Values that became infinite on their way to `dtype`.
  void AddOverflows(std::span<const SegmentReader::Overflow> overflows,
                    DType dtype);
  // A weight that is not round(master), and its target holds no other.
  void AddWeight(size_t weight, const ValueDifference& difference);

  // Whether there are losses of other kinds: at the same cost for any number.
  bool HasOtherThan(const std::vector<std::string>& kinds) const;
  // One a tensor and kind.
  std::vector<SinkLoss> List() const;

 private:
  struct Overflow {
    int64_t num_elements = 0;
    DType dtype = DType::kF32;
  };

  const Checkpoint& source_;
  mutable std::mutex mutex_;
  // By tensor.
  std::map<size_t, Overflow> overflows_;
  std::map<size_t, ValueDifference> weights_;
};

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_VALUE_LOSSES_H_
