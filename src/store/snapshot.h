// This rank's state as it was at a step boundary, for saving it.
//
// What: pins the current generation of every segment of the kinds that a
//   checkpoint holds: master, momentum, exp_avg, exp_avg_sq; the compute weight
//   only where a lease committed it after the last step, since it is the
//   rounded master otherwise. Segments hold padding as the partitioning says.
// Ownership: refers to the store, which it must not outlive: Close refuses
//   while it lives. Memory of a segment is valid until the segment is released.
// Threads: TakeSnapshot is collective. The rest may be called on any thread,
//   several at a time, and while steps and leases write the store; a segment is
//   read by nobody any more when it is released.
// Failures: TakeSnapshot throws on all ranks or on none: Error(kUnavailable)
//   for a store that is poisoned or closed, Error(kInvalidArgument) during a
//   step and, if not concurrent, while a write lease is held. Read throws what
//   the tier throws, Error(kInvalidArgument) for a segment that was released.
//   A store that is poisoned while a snapshot lives changes nothing of it: the
//   save may go on to its end and commit, and is what to resume from; a save
//   whose Read fails must not commit.

#ifndef MUONSTORE_SRC_STORE_SNAPSHOT_H_
#define MUONSTORE_SRC_STORE_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "muonstore/dtype.h"
#include "muonstore/pending.h"
#include "muonstore/store.h"
#include "src/store/lease_table.h"
#include "src/store/segments.h"

namespace muonstore {

struct SnapshotSegment {
  std::string_view kind;  // One of kStoreKinds.
  int32_t flat_group = 0;
  DType dtype = DType::kF32;
  int64_t num_elements = 0;  // With padding.
};

struct SnapshotOptions {
  // Steps and leases go on while the snapshot lives: it is read and released by
  // another thread than theirs, for which they may have to wait. Otherwise
  // steps and write leases are refused until it is gone.
  bool concurrent = false;
};

class Snapshot {
 public:
  // Releases all. What is being read of it must be waited for.
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // In the order in which they should be saved: first those that a step would
  // wait for, then as a step writes them. The same ones on every rank.
  std::span<const SnapshotSegment> segments() const { return segments_; }
  const StoreRecord& record() const { return record_; }
  // Empty where the segment is not memory.
  std::span<const std::byte> memory(size_t segment) const;
  PendingPtr Read(size_t segment, uint64_t offset_bytes,
                  std::span<std::byte> out) const;
  // The segment is saved, or given up: it may be written again. Once more does
  // nothing.
  void Release(size_t segment);
  // Seconds that steps and leases waited for snapshots since this one was
  // taken.
  double waited_s() const;

 private:
  friend std::unique_ptr<Snapshot> TakeSnapshot(StateStore::Impl& store,
                                                const SnapshotOptions& options);
  Snapshot(StateStore::Impl& store, const SnapshotOptions& options);
  void Pin(std::span<const SegmentId> segments);
  const PinnedSegment& pinned(size_t segment) const;

  StateStore::Impl& store_;
  StoreRecord record_;
  LeaseTable::SnapshotMark mark_;
  std::vector<SnapshotSegment> segments_;
  double waited_before_s_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::optional<PinnedSegment>> pins_;
};

// Collective.
std::unique_ptr<Snapshot> TakeSnapshot(StateStore::Impl& store,
                                       const SnapshotOptions& options);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_STORE_SNAPSHOT_H_
