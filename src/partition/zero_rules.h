// The rules by which ZeRO orders, groups and pads parameters.
//
// What: from parameter specs to flat groups with their parameters and paddings;
//   offsets and sizes follow from these alone (partitioning.cc).
// Ownership: plain values.
// Threads: pure functions.
// Failures: Error(kInvalidArgument) for a rule or specs that make no sense,
//   Error(kDataLoss) for counts beyond 64 bits.
#ifndef MUONSTORE_SRC_PARTITION_ZERO_RULES_H_
#define MUONSTORE_SRC_PARTITION_ZERO_RULES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "muonstore/parameter.h"
#include "muonstore/partitioning.h"

namespace muonstore {

void CheckRule(const ZeroRule& rule);

// Smallest multiple of `unit` that is at least `count`.
int64_t RoundUp(int64_t count, int64_t unit);

// ceil(count / parts).
int64_t CeilDivide(int64_t count, int64_t parts);

// The elements that stage 3 stores of a parameter on each rank.
int64_t PieceElements(const Shape& shape, const ZeroRule& rule);

// The flat groups of all trainable parameters that have elements; only `group`,
// `parameters` and `pad_after` are filled in.
std::vector<FlatGroup> FormFlatGroups(std::span<const ParameterSpec> specs,
                                      const ZeroRule& rule);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_PARTITION_ZERO_RULES_H_
