// How the target of a conversion is to be cut.
//
// What: from what a user asks for and what the source is, to a TargetLayout.
//   What is not asked for is kept: a conversion that changes nothing of the cut
//   keeps the source's flat groups with all their paddings.
// Ownership: plain values; nothing refers to the source.
// Threads: reads the checkpoints' tables only.
// Failures: Error(kInvalidArgument) for what is not settled or contradicts
//   itself (the text says what to do), Error(kUnsupported) for a source whose
//   state no ZeRO rule can cut.

#ifndef MUONSTORE_CONVERTERS_TARGET_LAYOUT_H_
#define MUONSTORE_CONVERTERS_TARGET_LAYOUT_H_

#include <optional>
#include <string>
#include <vector>

#include "converters/run_settings.h"
#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"

namespace muonstore {

struct LayoutRequest {
  // From flags and a run's config.
  RunSettings settings = {};
  // Whether the run that loads the target builds its model under zero.Init.
  std::optional<bool> zero_init = std::nullopt;
  // Take exactly the cut of this checkpoint; it must hold the same parameters
  // in the same param groups.
  const Checkpoint* like = nullptr;
};

struct LayoutChoice {
  TargetLayout layout;
  // What was chosen where there was a choice, for people.
  std::vector<std::string> notes;
};

LayoutChoice ChooseLayout(const Checkpoint& source,
                          const LayoutRequest& request);

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_TARGET_LAYOUT_H_
