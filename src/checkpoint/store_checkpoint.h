// A live store, as it is pinned by a snapshot, seen as a Checkpoint.
//
// What: tensors, segments and fragments of all ranks; elements of this rank
//   alone, read from the snapshot. So every CheckpointSink can plan a save of
//   the store, and a store of one rank can be converted into any format.
// Ownership: refers to store and snapshot.
// Threads: as Checkpoint.
// Failures: Error(kUnsupported) for elements that lie on another rank; what
//   the tiers throw.

#ifndef MUONSTORE_SRC_CHECKPOINT_STORE_CHECKPOINT_H_
#define MUONSTORE_SRC_CHECKPOINT_STORE_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"
#include "muonstore/executor.h"
#include "muonstore/store.h"
#include "src/store/snapshot.h"

namespace muonstore {

// What a store does not know of its run.
struct RunDescription {
  // Of the param groups; empty: unknown.
  std::vector<GroupHyperParameters> groups = {};
  ScalarMap scalars = {};
};

class StoreCheckpoint final : public Checkpoint {
 public:
  StoreCheckpoint(const StateStore& store, const Snapshot& snapshot,
                  const RunDescription& run);

  const CheckpointInfo& info() const override { return info_; }
  std::span<const CheckpointTensor> tensors() const override {
    return tensors_;
  }
  std::vector<Fragment> fragments(size_t tensor) const override;
  std::span<const Segment> segments() const override { return segments_; }
  void ReadSegment(int32_t segment, int64_t first_element,
                   std::span<std::byte> out) const override;

 private:
  void AddSegments();
  void AddTensors(int32_t parameter);
  size_t SegmentOf(std::string_view kind, int32_t flat_group) const;

  const StateStore& store_;
  const Snapshot& snapshot_;
  CheckpointInfo info_;
  std::vector<CheckpointTensor> tensors_;
  std::vector<int32_t> parameter_of_;  // By tensor.
  std::vector<Segment> segments_;
  // Of each rank, in the snapshot's order.
  std::map<std::pair<std::string_view, int32_t>, size_t> segment_index_;
};

// The store's own cut.
TargetLayout LayoutOf(const StateStore& store);

// What the headers of a checkpoint of the store say.
CheckpointInfo DescribeStore(const StateStore& store, const StoreRecord& record,
                             const RunDescription& run);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_CHECKPOINT_STORE_CHECKPOINT_H_
