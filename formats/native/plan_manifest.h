// From a source and a target layout to the manifest of what will be written.
#ifndef MUONSTORE_FORMATS_NATIVE_PLAN_MANIFEST_H_
#define MUONSTORE_FORMATS_NATIVE_PLAN_MANIFEST_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/native/manifest.h"
#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"

namespace muonstore::native {

struct PlannedManifest {
  // Without what only the writing gives: save id, digests, offsets.
  Manifest manifest;
  // The source's tensor behind each of the manifest's.
  std::vector<size_t> source_tensors;
};

// What the segments of a slot of a flat group hold.
struct FlatSlot {
  StateKind kind;
  int32_t flat_group = 0;
};

// Every tensor of the source is kept, in its dtype. State of a parameter that
// the layout cuts goes to the segments of its flat group, per kind and dtype;
// all else is a segment of its own, on the rank that has the fewest bytes so
// far. Weights that are derived stay derived. Slots of flat groups stand in
// `slot_order` as far as that names them, then in the order of the tensors.
PlannedManifest PlanManifest(const Checkpoint& source,
                             const TargetLayout& target,
                             std::span<const FlatSlot> slot_order = {});

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_PLAN_MANIFEST_H_
