#include "src/executor/unit.h"

#include <algorithm>
#include <tuple>

#include "muonstore/file_system.h"

namespace muonstore {
namespace {

constexpr uint64_t kPageElements = kIoBlockBytes / sizeof(float);

uint64_t ElementBytes(const StateStore::Impl& store, std::string_view kind,
                      int32_t flat_group) {
  return static_cast<uint64_t>(
      SizeBytes(store.segment_dtype(kind, flat_group)));
}

bool IsStaged(const StateStore::Impl& store, std::string_view kind,
              int32_t flat_group) {
  return !store.segments->addressable(kind, flat_group);
}

}  // namespace

Unit MakeUnit(std::vector<SegmentRun> runs) {
  std::sort(runs.begin(), runs.end(),
            [](const SegmentRun& a, const SegmentRun& b) {
              return std::tuple(a.flat_group, a.first) <
                     std::tuple(b.flat_group, b.first);
            });
  Unit unit;
  for (const SegmentRun& run : runs) {
    if (run.count == 0) continue;
    if (!unit.empty() && unit.back().flat_group == run.flat_group &&
        unit.back().end() == run.first) {
      unit.back().count += run.count;
    } else {
      unit.push_back(run);
    }
  }
  return unit;
}

uint64_t StagedBytes(const StateStore::Impl& store, std::string_view kind,
                     const SegmentRun& window) {
  if (!IsStaged(store, kind, window.flat_group)) return 0;
  const uint64_t size = ElementBytes(store, kind, window.flat_group);
  const uint64_t begin = static_cast<uint64_t>(window.first) * size;
  const uint64_t end = static_cast<uint64_t>(window.end()) * size;
  return (end + kIoBlockBytes - 1) / kIoBlockBytes * kIoBlockBytes -
         begin / kIoBlockBytes * kIoBlockBytes;
}

uint64_t StagedBytes(const StateStore::Impl& store,
                     std::span<const StagedKind> kinds, const Unit& unit) {
  uint64_t bytes = 0;
  for (const SegmentRun& window : unit) {
    for (const StagedKind& kind : kinds) {
      bytes += StagedBytes(store, kind.kind, window);
    }
  }
  return bytes;
}

std::vector<Unit> CutSegment(const StateStore::Impl& store,
                             std::span<const StagedKind> kinds,
                             int32_t flat_group, uint64_t max_bytes) {
  const int64_t elements =
      store.partitioning.groups()[static_cast<size_t>(flat_group)]
          .partition_elements;
  uint64_t element_bytes = 0;
  uint64_t num_staged = 0;
  for (const StagedKind& kind : kinds) {
    if (!IsStaged(store, kind.kind, flat_group)) continue;
    element_bytes += ElementBytes(store, kind.kind, flat_group);
    ++num_staged;
  }
  int64_t step = std::max<int64_t>(1, elements);
  if (num_staged > 0) {
    // A window may begin and end in the middle of a page.
    const uint64_t rounding = num_staged * 2 * kIoBlockBytes;
    const uint64_t room = max_bytes > rounding ? max_bytes - rounding : 0;
    const uint64_t pages = room / element_bytes / kPageElements;
    step = static_cast<int64_t>(std::max<uint64_t>(1, pages) * kPageElements);
  }
  std::vector<Unit> units;
  for (int64_t first = 0; first < elements; first += step) {
    units.push_back({{.flat_group = flat_group,
                      .first = first,
                      .count = std::min(step, elements - first)}});
  }
  return units;
}

}  // namespace muonstore
