#include "src/store/snapshot.h"

#include <array>
#include <optional>

#include "src/store/agreement.h"
#include "src/store/store_impl.h"

namespace muonstore {
namespace {

// In the order in which a step writes them.
constexpr std::array<std::string_view, 4> kSavedKinds = {kMomentum, kExpAvg,
                                                         kExpAvgSq, kMaster};

SnapshotSegment SegmentOf(const StateStore::Impl& store, std::string_view kind,
                          int32_t flat_group) {
  const FlatGroup& group =
      store.partitioning.groups()[static_cast<size_t>(flat_group)];
  return {.kind = kind,
          .flat_group = flat_group,
          .dtype = store.dtype(group.parameters.front(), kind),
          .num_elements = group.partition_elements};
}

}  // namespace

Snapshot::Snapshot(StateStore::Impl& store, const SnapshotOptions& /*options*/)
    : store_(store),
      record_(store.record),
      exclusive_(store.leases, "taking a snapshot") {
  const auto num_groups =
      static_cast<int32_t>(store.partitioning.groups().size());
  for (const std::string_view kind : kSavedKinds) {
    for (int32_t i = 0; i < num_groups; ++i) {
      if (store.segments->has(kind, i)) {
        segments_.push_back(SegmentOf(store, kind, i));
      }
    }
  }
}

Snapshot::~Snapshot() = default;

std::span<const std::byte> Snapshot::memory(size_t segment) const {
  const SnapshotSegment& at = segments_.at(segment);
  return store_.segments->bytes(at.kind, at.flat_group);
}

PendingPtr Snapshot::Read(size_t segment, uint64_t offset_bytes,
                          std::span<std::byte> out) const {
  const SnapshotSegment& at = segments_.at(segment);
  return store_.segments->Read(at.kind, at.flat_group, offset_bytes, out);
}

void Snapshot::Release(size_t segment) {
  static_cast<void>(segments_.at(segment));
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
  return snapshot;
}

}  // namespace muonstore
