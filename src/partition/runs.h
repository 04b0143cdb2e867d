// Fragments as an ascending sequence of runs of elements.
//
// What: checks of single fragments, and a stream that gives the runs of a whole
//   list in the order of the tensor without ever expanding the list.
// Ownership: a RunStream keeps a reference to the fragments; they must outlive
//   it.
// Threads: a RunStream belongs to one thread.
// Failures: Error(kInvalidArgument) for a malformed fragment.
#ifndef MUONSTORE_SRC_PARTITION_RUNS_H_
#define MUONSTORE_SRC_PARTITION_RUNS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "muonstore/copy_plan.h"
#include "muonstore/fragment.h"

namespace muonstore {

// Offsets that are negative or overflow, runs without elements or that overlap.
void CheckFragments(std::span<const Fragment> fragments);

// Elements [begin, end) of the tensor, from run `index` of a fragment.
struct Run {
  int64_t begin = 0;
  int64_t end = 0;
  size_t fragment = 0;
  int64_t index = 0;
};

// The runs of a list, ascending by their begin. Memory grows with the number of
// fragments, not of runs.
class RunStream {
 public:
  // The fragments must have passed CheckFragments.
  explicit RunStream(std::span<const Fragment> fragments);

  bool done() const { return heap_.empty(); }
  const Run& front() const { return heap_.front(); }
  void Pop();

 private:
  std::span<const Fragment> fragments_;
  std::vector<Run> heap_;  // The next run of each fragment.
};

// Appends a range behind ascending ones, or widens the last where they touch.
void AppendRange(std::vector<ElementRange>& ranges, ElementRange range);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_PARTITION_RUNS_H_
