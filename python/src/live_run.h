// A live training run, as a checkpoint that is about to be written.
//
// What: LiveRun says what a run keeps: parameters, how they are cut, groups,
//   counters. A LiveCheckpoint shows it as a Checkpoint, so that the native
//   format's planner takes it: the tables are whole, values stay with the
//   caller, who hands them to the writer.
// Ownership: plain values; a LiveCheckpoint owns its tables.
// Threads: as Checkpoint. Failures: Error(kInvalidArgument) for a description
//   that contradicts itself; reading is kInternal.

#ifndef MUONSTORE_PYTHON_SRC_LIVE_RUN_H_
#define MUONSTORE_PYTHON_SRC_LIVE_RUN_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"
#include "muonstore/parameter.h"
#include "muonstore/partitioning.h"

namespace muonstore::python {

struct LiveRun {
  int32_t stage = 2;
  int32_t num_ranks = 1;
  int32_t rank = 0;
  // Those that a rule cuts, and frozen ones, in the module's order.
  std::vector<ParameterSpec> parameters;
  std::vector<FlatGroup> flat_groups;
  // By flat group: the kinds of state that it keeps and their dtypes.
  std::vector<std::vector<std::pair<StateKind, DType>>> states;
  // Tensors that are not cut: frozen weights, buffers.
  std::vector<CheckpointTensor> singles;
  // groups, counters, step, momentum, precision, offload, optimizer_class,
  // aliases, module_order.
  CheckpointInfo info;
};

class LiveCheckpoint final : public Checkpoint {
 public:
  explicit LiveCheckpoint(const LiveRun& run);

  const CheckpointInfo& info() const override { return info_; }
  std::span<const CheckpointTensor> tensors() const override {
    return tensors_;
  }
  std::vector<Fragment> fragments(size_t tensor) const override;
  std::span<const Segment> segments() const override { return segments_; }
  void ReadSegment(int32_t segment, int64_t first_element,
                   std::span<std::byte> out) const override;

  // How it is cut, for the writer.
  const TargetLayout& layout() const { return layout_; }

 private:
  void AddFlatSegments(const LiveRun& run);
  void AddCutTensors(const LiveRun& run, int32_t parameter);

  TargetLayout layout_;
  CheckpointInfo info_;
  std::vector<CheckpointTensor> tensors_;
  // Of each tensor: its parameter, or -1, and then its own segment.
  std::vector<std::pair<int32_t, int32_t>> places_;
  std::vector<Segment> segments_;
  // First segment of each (flat group, kind); one a rank follows.
  std::map<std::pair<int32_t, StateKind>, int32_t> first_segment_;
};

}  // namespace muonstore::python

#endif  // MUONSTORE_PYTHON_SRC_LIVE_RUN_H_
