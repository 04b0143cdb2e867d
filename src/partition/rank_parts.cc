#include "src/partition/rank_parts.h"

#include <algorithm>

namespace muonstore {

std::vector<RankPart> PartsOnRank(const Partitioning& partitioning,
                                  std::span<const ParameterSpec> specs,
                                  int32_t rank, int32_t flat_group) {
  const FlatGroup& group =
      partitioning.groups()[static_cast<size_t>(flat_group)];
  std::vector<RankPart> parts;
  for (const int32_t position :
       partitioning.parameters_on_rank(rank, flat_group)) {
    const auto at = static_cast<size_t>(position);
    RankPart part{.parameter = group.parameters[at]};
    const int64_t numel =
        specs[static_cast<size_t>(part.parameter)].shape.num_elements();
    if (partitioning.stage() == 3) {
      const int64_t piece = partitioning.piece_elements(part.parameter);
      part.tensor_offset = rank * piece;
      part.segment_offset = group.offsets[at];
      part.length = std::min(piece, numel - part.tensor_offset);
    } else {
      const int64_t begin = group.offsets[at] - rank * group.partition_elements;
      part.segment_offset = std::max<int64_t>(0, begin);
      part.tensor_offset = part.segment_offset - begin;
      part.length = std::min(group.partition_elements, begin + numel) -
                    part.segment_offset;
    }
    parts.push_back(part);
  }
  return parts;
}

}  // namespace muonstore
