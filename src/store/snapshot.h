// This rank's state as it was at a step boundary, for saving it.
//
// What: pins the current generation of every segment of the kinds that a
//   checkpoint holds: master, momentum, exp_avg, exp_avg_sq; the compute weight
//   only where a lease committed it after the last step, since it is the
//   rounded master otherwise. Segments hold padding as the partitioning says.
// Ownership: refers to the store, which it must not outlive. Memory of a
//   segment is valid until the segment is released.
// Threads: TakeSnapshot is collective. Read and Release may be called on any
//   thread, for different segments at a time.
// Failures: TakeSnapshot throws on all ranks or on none: Error(kUnavailable)
//   for a store that is poisoned or closed, Error(kInvalidArgument) during a
//   step. Read throws what the tier throws.

#ifndef MUONSTORE_SRC_STORE_SNAPSHOT_H_
#define MUONSTORE_SRC_STORE_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
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
  // Steps go on while the snapshot lives. Otherwise they, and leases, are
  // refused until it is gone.
  bool concurrent = false;
};

class Snapshot {
 public:
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // In the order in which they should be saved.
  std::span<const SnapshotSegment> segments() const { return segments_; }
  const StoreRecord& record() const { return record_; }
  // Empty where the segment is not memory.
  std::span<const std::byte> memory(size_t segment) const;
  PendingPtr Read(size_t segment, uint64_t offset_bytes,
                  std::span<std::byte> out) const;
  // The segment is saved: it may be written again.
  void Release(size_t segment);

 private:
  friend std::unique_ptr<Snapshot> TakeSnapshot(StateStore::Impl& store,
                                                const SnapshotOptions& options);
  Snapshot(StateStore::Impl& store, const SnapshotOptions& options);

  StateStore::Impl& store_;
  StoreRecord record_;
  LeaseTable::Exclusive exclusive_;
  std::vector<SnapshotSegment> segments_;
};

// Collective.
std::unique_ptr<Snapshot> TakeSnapshot(StateStore::Impl& store,
                                       const SnapshotOptions& options);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_STORE_SNAPSHOT_H_
