// What one rank holds of a flat group.
//
// What: the same cut as Partitioning::fragments(), seen from a rank: it costs
//   what the rank holds, however many ranks there are.
// Ownership: plain values. Threads: a pure function. Failures: none.

#ifndef MUONSTORE_SRC_PARTITION_RANK_PARTS_H_
#define MUONSTORE_SRC_PARTITION_RANK_PARTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "muonstore/parameter.h"
#include "muonstore/partitioning.h"

namespace muonstore {

// A parameter's elements on one rank; all counts in elements.
struct RankPart {
  int32_t parameter = 0;  // Index into the specs.
  int64_t tensor_offset = 0;
  int64_t segment_offset = 0;
  int64_t length = 0;

  friend bool operator==(const RankPart&, const RankPart&) = default;
};

// In flat order, without parameters that have no element there. `specs` are
// those that the partitioning was built from.
std::vector<RankPart> PartsOnRank(const Partitioning& partitioning,
                                  std::span<const ParameterSpec> specs,
                                  int32_t rank, int32_t flat_group);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_PARTITION_RANK_PARTS_H_
