#include "src/executor/stage.h"

#include <algorithm>
#include <tuple>

#include "muonstore/error.h"
#include "muonstore/file_system.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

bool Reads(StageUse use) { return use != StageUse::kReplace; }
bool WritesNext(StageUse use) {
  return use == StageUse::kUpdate || use == StageUse::kReplace;
}

}  // namespace

Stage::Stage(StateStore::Impl& store, const Unit& unit,
             std::span<const StagedKind> kinds, std::span<std::byte> buffer)
    : store_(store), unit_(unit), kinds_(kinds) {
  parts_.reserve(kinds.size() * unit.size());
  for (const StagedKind& kind : kinds) {
    for (const SegmentRun& window : unit) {
      // Only the update of a whole segment chooses where it goes.
      if (WritesNext(kind.use)) {
        store_.segments->BeginUpdate(kind.kind, window.flat_group);
      }
      parts_.push_back(MakePart(kind, window, buffer));
    }
  }
}

Stage::Part Stage::MakePart(const StagedKind& kind, const SegmentRun& window,
                            std::span<std::byte>& buffer) const {
  const Segments& segments = *store_.segments;
  const int32_t flat_group = window.flat_group;
  Part part{.window = window,
            .use = kind.use,
            .kind = kind.kind,
            .element_bytes = static_cast<uint64_t>(
                SizeBytes(store_.segment_dtype(kind.kind, flat_group)))};
  const auto size = static_cast<size_t>(window.count) *
                    static_cast<size_t>(part.element_bytes);
  const uint64_t offset = part.offset_bytes();
  if (segments.addressable(kind.kind, flat_group)) {
    part.out =
        (WritesNext(kind.use) ? segments.next_bytes(kind.kind, flat_group)
                              : segments.bytes(kind.kind, flat_group))
            .subspan(offset, size);
    part.in = segments.bytes(kind.kind, flat_group).subspan(offset, size);
    return part;
  }
  const uint64_t bytes = StagedBytes(store_, kind.kind, window);
  part.is_staged = true;
  part.out = buffer.subspan(offset % kIoBlockBytes, size);
  part.in = part.out;
  buffer = buffer.subspan(bytes);
  return part;
}

uint64_t Stage::Load() {
  uint64_t bytes = 0;
  for (const Part& part : parts_) {
    if (!part.is_staged || !Reads(part.use)) continue;
    pending_.push_back(store_.segments->Read(part.kind, part.window.flat_group,
                                             part.offset_bytes(), part.out));
    bytes += part.out.size();
  }
  return bytes;
}

uint64_t Stage::Store() {
  uint64_t bytes = 0;
  for (const Part& part : parts_) {
    const bool edits = part.use == StageUse::kEdit;
    if (!part.is_staged || !(edits || WritesNext(part.use))) continue;
    const int32_t flat_group = part.window.flat_group;
    pending_.push_back(
        edits ? store_.segments->Write(part.kind, flat_group,
                                       part.offset_bytes(), part.out)
              : store_.segments->WriteNext(part.kind, flat_group,
                                           part.offset_bytes(), part.out));
    bytes += part.out.size();
  }
  return bytes;
}

void Stage::WaitLoaded() { WaitAll(); }
void Stage::WaitStored() { WaitAll(); }

void Stage::WaitAll() {
  for (const PendingPtr& pending : pending_) pending->Wait();
  pending_.clear();
}

const Stage::Part& Stage::PartOf(std::string_view kind,
                                 const SegmentRun& run) const {
  for (size_t i = 0; i < kinds_.size(); ++i) {
    if (kinds_[i].kind != kind) continue;
    const auto begin =
        parts_.begin() + static_cast<std::ptrdiff_t>(i * unit_.size());
    const auto end = begin + static_cast<std::ptrdiff_t>(unit_.size());
    // The last window that begins at or before the run.
    const auto after = std::upper_bound(
        begin, end, run, [](const SegmentRun& value, const Part& part) {
          return std::tuple(value.flat_group, value.first) <
                 std::tuple(part.window.flat_group, part.window.first);
        });
    if (after == begin) break;
    const Part& part = *std::prev(after);
    if (part.window.flat_group == run.flat_group &&
        run.end() <= part.window.end()) {
      return part;
    }
  }
  throw Error(ErrorCode::kInternal,
              StrCat("a step's unit lacks elements of ", kind, ": flat group ",
                     run.flat_group, " from ", run.first));
}

StateSpan Stage::state(std::string_view kind, const SegmentRun& run) const {
  const Part& part = PartOf(kind, run);
  const auto first = static_cast<size_t>(run.first - part.window.first);
  const auto count = static_cast<size_t>(run.count);
  // Segments begin at pages and hold floats from the start.
  const std::span<const float> in(
      reinterpret_cast<const float*>(part.in.data()) + first, count);
  const std::span<float> out(reinterpret_cast<float*>(part.out.data()) + first,
                             count);
  return {in, out};
}

ComputeWeights Stage::weights(const SegmentRun& run) const {
  const Part& part = PartOf(kWeight, run);
  const auto size = static_cast<size_t>(part.element_bytes);
  return {.dtype = store_.segment_dtype(kWeight, run.flat_group),
          .bytes = part.out.subspan(
              static_cast<size_t>(run.first - part.window.first) * size,
              static_cast<size_t>(run.count) * size)};
}

}  // namespace muonstore
