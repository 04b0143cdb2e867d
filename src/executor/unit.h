// What one unit of a step works on: runs of this rank's segments.
//
// What: a step goes over its elements unit by unit, so that state which lies on
//   a tier that is not memory is in memory for one unit at a time. A unit's
//   windows are its runs, merged where they touch.
// Threads: plain values.

#ifndef MUONSTORE_SRC_EXECUTOR_UNIT_H_
#define MUONSTORE_SRC_EXECUTOR_UNIT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "src/store/store_impl.h"

namespace muonstore {

// Elements [first, first + count) of this rank's segment of a flat group.
struct SegmentRun {
  int32_t flat_group = 0;
  int64_t first = 0;
  int64_t count = 0;

  int64_t end() const { return first + count; }
};

// How a unit uses a state kind.
enum class StageUse {
  kRead,
  // As kRead; what is in memory may be changed and forgotten.
  kScratch,
  // Reads, and writes the current generation.
  kEdit,
  // Reads the current generation, and writes all of the next one.
  kUpdate,
  // Writes all of the next generation.
  kReplace,
};

struct StagedKind {
  std::string_view kind;
  StageUse use = StageUse::kRead;
};

// Windows in ascending order, without overlap.
using Unit = std::vector<SegmentRun>;

// Merges runs into windows; no two of them may overlap.
Unit MakeUnit(std::vector<SegmentRun> runs);

// Bytes that a window of a kind takes in a staging buffer: whole pages, so that
// memory lies in its page as the elements do in theirs on disk. 0 where the
// segment is memory.
uint64_t StagedBytes(const StateStore::Impl& store, std::string_view kind,
                     const SegmentRun& window);
// Of all windows of a unit.
uint64_t StagedBytes(const StateStore::Impl& store,
                     std::span<const StagedKind> kinds, const Unit& unit);

// What a page of elements of five kinds takes, wherever it lies in pages.
inline constexpr uint64_t kLeastUnitBytes = uint64_t{64} << 10;

// The segment of a flat group in units: one where none of `kinds` is staged,
// else as many as it takes for none to need more than `max_bytes`, which is at
// least kLeastUnitBytes.
std::vector<Unit> CutSegment(const StateStore::Impl& store,
                             std::span<const StagedKind> kinds,
                             int32_t flat_group, uint64_t max_bytes);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_UNIT_H_
