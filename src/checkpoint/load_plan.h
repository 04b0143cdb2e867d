// What each tensor of a store is read from, decided before anything is read.
//
// What: matches the store's tensors with those of a checkpoint by name and
//   kind, and the param groups' steps by their parameters.
// Ownership: plain values; indices into the store's parameters and the
//   checkpoint's tensors.
// Threads: a pure function of what the headers say: the same on every rank.
// Failures: as load.h says of errors that change nothing.

#ifndef MUONSTORE_SRC_CHECKPOINT_LOAD_PLAN_H_
#define MUONSTORE_SRC_CHECKPOINT_LOAD_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "muonstore/load.h"

namespace muonstore {

// One tensor of the store.
struct LoadItem {
  int32_t parameter = 0;
  StateKind kind;
  // Absent: zeros. Elements that the tensor is missing are zeros, too.
  std::optional<size_t> tensor;
  double divisor = 1;
};

struct LoadPlan {
  std::vector<LoadItem> items;
  StoreRecord record;  // Of the store after the load.
  LoadReport report;
};

LoadPlan PlanLoad(const StateStore& store, const Checkpoint& checkpoint,
                  const LoadOptions& options);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_CHECKPOINT_LOAD_PLAN_H_
