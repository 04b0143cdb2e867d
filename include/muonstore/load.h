// Filling a live store from a checkpoint of any stage and rank count.
//
// What: each rank reads the elements that its partition owns, by name: masters,
//   momentum and moments, step counters; the compute weight is the checkpoint's
//   where it has one of that dtype, else round(master). 16-bit state is
//   widened. Momentum in loss-scale units is brought to true units.
// Ownership: the store's arenas are filled in place and stay pinned. Beside
//   them a load takes a copy of one tensor's part of a rank, and a few MB.
// Threads: collective; each rank opens the checkpoint itself.
// Failures: Error(kNotFound) for a parameter or state kind that the checkpoint
//   lacks, Error(kDataLoss) for elements that its writer lost,
//   Error(kInvalidArgument) for a shape or optimizer that differs and for ranks
//   that opened checkpoints of different tags, steps or tensors,
//   Error(kUnsupported) for momentum of an unknown scale and for dtypes that
//   are no numbers; on every rank, before anything is changed. What a read
//   finds damaged poisons the store: its own error on the rank that met it,
//   Error(kUnavailable) on the others.

#ifndef MUONSTORE_LOAD_H_
#define MUONSTORE_LOAD_H_

#include <optional>
#include <string>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/parameter.h"
#include "muonstore/store.h"

namespace muonstore {

struct LoadOptions {
  // Divides momentum in loss-scale units of which the file does not prove the
  // scale; absent: such a checkpoint is refused.
  std::optional<double> momentum_scale;
  // Momentum, moments and step counters that the checkpoint lacks start as
  // zeros and are listed; false: they are an error.
  bool allow_missing_state = false;
  // How the store clips, whatever the run of the checkpoint did; absent: as it.
  std::optional<ClippingMode> clipping;
};

// The same on every rank.
struct LoadReport {
  // State that started as zeros: "name/kind", "name/kind elements 7 to 9",
  // "group 1/step".
  std::vector<std::string> missing;
  // What a user should know: clipping and convention that are not the store's.
  std::vector<std::string> notes;
};

// Collective. Sets tensors and record of the store. A store that is loaded from
// a DeepSpeed checkpoint clips as DeepSpeed does (StoreRecord::clipping), since
// another mode would change the effective step; the report says so.
LoadReport LoadCheckpoint(StateStore& store, const Checkpoint& checkpoint,
                          const LoadOptions& options = {});

// The parameters of a checkpoint as a store needs them: frozen ones included,
// in the module's order where the checkpoint tells it, else in its own; seen as
// matrices as the checkpoint records it, else whole. Error(kInvalidArgument)
// for a checkpoint without parameters.
std::vector<ParameterSpec> SpecsOf(const Checkpoint& checkpoint);

}  // namespace muonstore

#endif  // MUONSTORE_LOAD_H_
