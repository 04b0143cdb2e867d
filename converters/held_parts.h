// The parts of a range that a tensor holds.
#ifndef MUONSTORE_CONVERTERS_HELD_PARTS_H_
#define MUONSTORE_CONVERTERS_HELD_PARTS_H_

#include <span>
#include <vector>

#include "muonstore/copy_plan.h"

namespace muonstore {

// `missing` is ascending, without overlap, as CheckpointTensor::missing is.
std::vector<ElementRange> HeldParts(ElementRange range,
                                    std::span<const ElementRange> missing);

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_HELD_PARTS_H_
