// Compares what two checkpoints hold besides tensors.
//
// What: hyper-parameters and steps per param group, counters, and how the
//   momentum is to be read, and faults found while opening. Groups are matched
//   by the parameters that they hold, the rest by name. A value that only one
//   checkpoint has is a note: the keys that a file holds depend on the
//   optimizer class behind it, which is part of the container, as stage, ranks
//   and offload are.
// Ownership: plain values.
// Threads: pure functions.

#ifndef MUONSTORE_SRC_INSPECT_STATE_DIFF_H_
#define MUONSTORE_SRC_INSPECT_STATE_DIFF_H_

#include <string>
#include <vector>

#include "muonstore/checkpoint.h"

namespace muonstore {

struct ValueDiff {
  std::string what;  // "group muon-params: lr", "counter global_steps".
  std::string a;     // Rendered; "(none)" where there is none.
  std::string b;
  // False: worth knowing, but not another state.
  bool is_difference = true;
};

// Numbers compare by value, whatever their type in the file.
bool ScalarsEqual(const Scalar& a, const Scalar& b);

std::vector<ValueDiff> DiffGroups(const Checkpoint& a, const Checkpoint& b);
std::vector<ValueDiff> DiffCounters(const CheckpointInfo& a,
                                    const CheckpointInfo& b);
// Faults of a checkpoint as a whole (those of one tensor show at the tensor): a
// fault of only one is a difference, one of both a note.
std::vector<ValueDiff> DiffFaults(const CheckpointInfo& a,
                                  const CheckpointInfo& b);
// Convention, unit and the unit's scale: equal numbers in different units are
// different momentum.
std::vector<ValueDiff> DiffMomentumRecords(const CheckpointInfo& a,
                                           const CheckpointInfo& b);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_INSPECT_STATE_DIFF_H_
