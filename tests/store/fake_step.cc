#include "tests/store/fake_step.h"

#include <algorithm>
#include <cstring>

namespace muonstore::testutil {
namespace {

size_t SizeOf(const SnapshotSegment& segment) {
  return static_cast<size_t>(segment.num_elements) *
         static_cast<size_t>(SizeBytes(segment.dtype));
}

void WriteNext(Segments& segments, const SegmentId& id,
               std::span<const std::byte> bytes) {
  segments.BeginUpdate(id.kind, id.flat_group);
  const auto memory = segments.next_bytes(id.kind, id.flat_group);
  if (segments.addressable(id.kind, id.flat_group)) {
    std::ranges::copy(bytes, memory.begin());
    return;
  }
  const auto half = bytes.size() / 2;
  const auto first =
      segments.WriteNext(id.kind, id.flat_group, 0, bytes.first(half));
  const auto second =
      segments.WriteNext(id.kind, id.flat_group, half, bytes.subspan(half));
  first->Wait();
  second->Wait();
}

}  // namespace

std::vector<std::byte> StepBytes(std::string_view kind, int32_t flat_group,
                                 int64_t step, size_t size) {
  const uint64_t base =
      (static_cast<uint64_t>(step) * 64 + StoreKindIndex(kind)) * 1024 +
      static_cast<uint64_t>(flat_group);
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) {
    // Odd multipliers: neighbours, segments and steps differ.
    const uint64_t word = base * 0x9E3779B97F4A7C15U + i * 0xD1B54A32D192ED03U;
    bytes[i] = static_cast<std::byte>(word >> 56U);
  }
  return bytes;
}

void FakeStep(StateStore::Impl& store) {
  const LeaseTable::Exclusive exclusive(store.leases, "the step");
  const int64_t step = store.record.steps + 1;
  for (const SegmentId& id : StepOrder(store.parameters, store.partitioning)) {
    WriteNext(*store.segments, id,
              StepBytes(id.kind, id.flat_group, step,
                        store.segments->size_bytes(id.kind, id.flat_group)));
  }
  store.segments->CommitUpdates();
  for (size_t i = 0; i < store.parameters.size(); ++i) {
    for (const std::string_view kind : kStoreKinds) {
      if (kind != kGradient && HasKind(store.parameters[i].optimizer, kind)) {
        store.leases.Advance(static_cast<int32_t>(i), kind);
      }
    }
  }
  ++store.record.steps;
}

std::vector<std::byte> CurrentBytes(const StateStore::Impl& store,
                                    std::string_view kind, int32_t flat_group) {
  std::vector<std::byte> bytes(store.segments->size_bytes(kind, flat_group));
  store.segments->Read(kind, flat_group, 0, bytes)->Wait();
  return bytes;
}

std::vector<std::byte> SnapshotBytes(const Snapshot& snapshot, size_t segment,
                                     size_t part_bytes) {
  std::vector<std::byte> bytes(SizeOf(snapshot.segments()[segment]));
  if (part_bytes == 0) part_bytes = bytes.size();
  for (size_t done = 0; done < bytes.size();) {
    const auto part = std::span(bytes).subspan(done).first(
        std::min(part_bytes, bytes.size() - done));
    snapshot.Read(segment, done, part)->Wait();
    done += part.size();
  }
  return bytes;
}

int32_t NumOtherThanStep(const Snapshot& snapshot, int64_t step) {
  int32_t num_other = 0;
  for (size_t i = 0; i < snapshot.segments().size(); ++i) {
    const SnapshotSegment& segment = snapshot.segments()[i];
    const auto bytes = SnapshotBytes(snapshot, i);
    num_other +=
        bytes == StepBytes(segment.kind, segment.flat_group, step, bytes.size())
            ? 0
            : 1;
  }
  return num_other;
}

int32_t NumOtherThanStep(const StateStore::Impl& store, int64_t step) {
  int32_t num_other = 0;
  for (const SegmentId& id : StepOrder(store.parameters, store.partitioning)) {
    const auto bytes = CurrentBytes(store, id.kind, id.flat_group);
    num_other +=
        bytes == StepBytes(id.kind, id.flat_group, step, bytes.size()) ? 0 : 1;
  }
  return num_other;
}

}  // namespace muonstore::testutil
