#include "src/store/snapshot.h"

#include <algorithm>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/store/agreement.h"
#include "src/store/store_impl.h"

namespace muonstore {
namespace {

SnapshotSegment SegmentOf(const StateStore::Impl& store, const SegmentId& id) {
  const FlatGroup& group =
      store.partitioning.groups()[static_cast<size_t>(id.flat_group)];
  return {.kind = id.kind,
          .flat_group = id.flat_group,
          .dtype = store.dtype(group.parameters.front(), id.kind),
          .num_elements = group.partition_elements};
}

// Collective, for flat groups: 1 where a lease committed the weight of a
// parameter since the last step, on any rank.
std::vector<int64_t> WrittenWeights(const StateStore::Impl& store) {
  std::vector<int64_t> is_written;
  for (const FlatGroup& group : store.partitioning.groups()) {
    is_written.push_back(
        std::ranges::any_of(group.parameters, [&](int32_t parameter) {
          return store.leases.written_since_step(parameter, kWeight);
        }));
  }
  store.communicator->AllReduce(is_written, ReduceOp::kMax);
  return is_written;
}

std::vector<SegmentId> SegmentsToSave(const StateStore::Impl& store) {
  const std::vector<int64_t> is_written = WrittenWeights(store);
  std::vector<SegmentId> segments =
      StepOrder(store.parameters, store.partitioning);
  std::erase_if(segments, [&](const SegmentId& id) {
    return !IsSavedKind(id.kind) &&
           is_written[static_cast<size_t>(id.flat_group)] == 0;
  });
  return segments;
}

}  // namespace

Snapshot::Snapshot(StateStore::Impl& store, const SnapshotOptions& options)
    : store_(store),
      record_(store.record),
      mark_(store.leases, store.record.steps, !options.concurrent),
      waited_before_s_(store.segments->waited_s()) {}

Snapshot::~Snapshot() = default;

void Snapshot::Pin(std::span<const SegmentId> segments) {
  // By how many steps can write them before one waits.
  std::vector<std::pair<int32_t, size_t>> order;
  std::vector<PinnedSegment> pins;
  for (const SegmentId& id : segments) {
    pins.push_back(
        store_.segments->Pin(id.kind, id.flat_group, PinPurpose::kSnapshot));
    order.emplace_back(
        store_.segments->updates_before_wait(id.kind, id.flat_group),
        order.size());
  }
  std::ranges::sort(order);
  for (const auto& [unused, at] : order) {
    segments_.push_back(SegmentOf(store_, segments[at]));
    pins_.emplace_back(std::move(pins[at]));
  }
}

const PinnedSegment& Snapshot::pinned(size_t segment) const {
  const std::optional<PinnedSegment>& pin = pins_.at(segment);
  if (!pin.has_value()) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("segment ", segment, " of the snapshot was released"));
  }
  return *pin;
}

std::span<const std::byte> Snapshot::memory(size_t segment) const {
  const std::lock_guard lock(mutex_);
  return pinned(segment).memory();
}

PendingPtr Snapshot::Read(size_t segment, uint64_t offset_bytes,
                          std::span<std::byte> out) const {
  const PinnedSegment* pin = nullptr;
  {
    const std::lock_guard lock(mutex_);
    pin = &pinned(segment);
  }
  return pin->Read(offset_bytes, out);
}

void Snapshot::Release(size_t segment) {
  const std::lock_guard lock(mutex_);
  pins_.at(segment).reset();
}

double Snapshot::waited_s() const {
  return store_.segments->waited_s() - waited_before_s_;
}

std::unique_ptr<Snapshot> TakeSnapshot(StateStore::Impl& store,
                                       const SnapshotOptions& options) {
  std::unique_ptr<Snapshot> snapshot;
  const std::optional<Error> error = Caught([&] {
    store.RequireUsable();
    snapshot.reset(new Snapshot(store, options));
  });
  Digest digest;
  digest.Add(static_cast<int64_t>(options.concurrent));
  digest.Add(store.record.steps).Add(store.record.skipped_steps);
  RequireAgreement(*store.communicator, "the snapshot", error, digest.value());
  if (options.concurrent) store.MakeSpares();
  const std::lock_guard lock(store.commit_mutex);
  snapshot->Pin(SegmentsToSave(store));
  return snapshot;
}

}  // namespace muonstore
