// A unit's state in memory: where it lies, or in a staging buffer.
//
// What: kinds whose tier is memory are used in place, from the current
//   generation to the next; the others are read into the buffer by Load and
//   written back by Store.
// Ownership: refers to store, unit and buffer, which it must not outlive.
// Threads: Load to WaitStored on one thread; between WaitLoaded and Store the
//   memory may be used by many.
// Failures: what the tier throws. A stage that is destroyed waits for what is
//   under way.

#ifndef MUONSTORE_SRC_EXECUTOR_STAGE_H_
#define MUONSTORE_SRC_EXECUTOR_STAGE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "muonstore/pending.h"
#include "src/executor/unit.h"
#include "src/kernel/compute_weight.h"
#include "src/kernel/state_span.h"

namespace muonstore {

class Stage {
 public:
  // `buffer` starts at a page and has the StagedBytes of all, or more.
  Stage(StateStore::Impl& store, const Unit& unit,
        std::span<const StagedKind> kinds, std::span<std::byte> buffer);

  // Start reads and writes of the tier; return their bytes.
  uint64_t Load();
  void WaitLoaded();
  uint64_t Store();
  void WaitStored();

  // Of a run within one window: f32 kinds. For kUpdate `in` is the current and
  // `out` the next generation.
  StateSpan state(std::string_view kind, const SegmentRun& run) const;
  std::span<float> f32(std::string_view kind, const SegmentRun& run) const {
    return state(kind, run).out;
  }
  ComputeWeights weights(const SegmentRun& run) const;

 private:
  // A window of a kind.
  struct Part {
    SegmentRun window;
    StageUse use = StageUse::kRead;
    std::string_view kind;
    uint64_t element_bytes = 0;
    std::span<const std::byte> in;
    std::span<std::byte> out;
    bool is_staged = false;

    uint64_t offset_bytes() const {
      return static_cast<uint64_t>(window.first) * element_bytes;
    }
  };

  Part MakePart(const StagedKind& kind, const SegmentRun& window,
                std::span<std::byte>& buffer) const;
  const Part& PartOf(std::string_view kind, const SegmentRun& run) const;
  void WaitAll();

  StateStore::Impl& store_;
  const Unit& unit_;
  std::span<const StagedKind> kinds_;
  std::vector<Part> parts_;  // By kind, then by window.
  std::vector<PendingPtr> pending_;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_STAGE_H_
