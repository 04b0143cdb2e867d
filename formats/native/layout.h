// Where the elements of a native checkpoint lie: segments and fragments.
//
// What: turns the manifest's rule, flat groups and slots into segments, and
//   tensors into fragments. Reader and writer use the same one.
// Ownership: owns what it needs.
// Threads: immutable after construction.
// Failures: Error(kDataLoss) where the tables contradict each other, with the
//   tensor.
#ifndef MUONSTORE_FORMATS_NATIVE_LAYOUT_H_
#define MUONSTORE_FORMATS_NATIVE_LAYOUT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "formats/native/manifest.h"
#include "muonstore/checkpoint.h"
#include "muonstore/fragment.h"
#include "muonstore/partitioning.h"

namespace muonstore::native {

class Layout {
 public:
  // Checks rule, groups, slots and tensors; not the files.
  explicit Layout(const Manifest& manifest);

  const Partitioning& partitioning() const { return partitioning_; }
  int32_t num_ranks() const { return partitioning_.num_ranks(); }
  // Rank by rank, in the order of the slots; `file` is empty.
  std::span<const Segment> segments() const { return segments_; }
  // The slot of each segment.
  std::span<const int32_t> slots() const { return slot_of_; }
  // The segments of a rank are [first_segment(rank), first_segment(rank + 1)).
  size_t first_segment(int32_t rank) const {
    return first_of_rank_[static_cast<size_t>(rank)];
  }
  std::vector<Fragment> fragments(const ManifestTensor& entry) const;
  // Without the elements that are missing.
  std::vector<Fragment> present_fragments(const ManifestTensor& entry) const;
  // Bytes of a segment without padding.
  uint64_t segment_bytes(size_t segment) const;

 private:
  void PlaceSlots(const Manifest& manifest);
  void CheckTensors(const Manifest& manifest) const;
  int32_t SegmentOf(int32_t rank, int32_t slot) const;

  Partitioning partitioning_;
  std::vector<Slot> slots_;
  size_t num_flat_slots_ = 0;
  std::vector<Segment> segments_;
  std::vector<int32_t> slot_of_;
  std::vector<size_t> first_of_rank_;  // One more than there are ranks.
  std::vector<int32_t> position_;      // Of a single slot on its rank.
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_LAYOUT_H_
