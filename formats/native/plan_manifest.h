// From a source and a target layout to the manifest of what will be written.
#ifndef MUONSTORE_FORMATS_NATIVE_PLAN_MANIFEST_H_
#define MUONSTORE_FORMATS_NATIVE_PLAN_MANIFEST_H_

#include <cstddef>
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

// Every tensor of the source is kept, in its dtype. State of a parameter that
// the layout cuts goes to the segments of its flat group, per kind and dtype;
// all else is a segment of its own, on the rank that has the fewest bytes so
// far. Weights that are derived stay derived.
PlannedManifest PlanManifest(const Checkpoint& source,
                             const TargetLayout& target);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_PLAN_MANIFEST_H_
