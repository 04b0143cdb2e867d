#include "python/src/live_run.h"

#include <algorithm>

#include "muonstore/error.h"

namespace muonstore::python {
namespace {

TargetLayout LayoutOf(const LiveRun& run) {
  const ZeroRule rule{.stage = run.stage,
                      .num_ranks = run.num_ranks,
                      .muon_order = MuonOrder::kAsGiven};
  return {.specs = run.parameters,
          .rule = rule,
          .partitioning =
              Partitioning::FromGroups(run.parameters, rule, run.flat_groups),
          .precision = run.info.precision,
          .offload = run.info.offload,
          .optimizer_class = run.info.optimizer_class};
}

uint64_t BytesOf(const CheckpointTensor& tensor) {
  return static_cast<uint64_t>(tensor.shape.num_elements() *
                               SizeBytes(tensor.dtype));
}

}  // namespace

LiveCheckpoint::LiveCheckpoint(const LiveRun& run)
    : layout_(LayoutOf(run)), info_(run.info) {
  info_.stage = run.stage;
  info_.num_ranks = run.num_ranks;
  for (const ParameterSpec& spec : run.parameters) {
    if (spec.optimizer == Optimizer::kNone) info_.frozen.push_back(spec.name);
  }
  AddFlatSegments(run);
  for (size_t i = 0; i < run.parameters.size(); ++i) {
    AddCutTensors(run, static_cast<int32_t>(i));
  }
  for (const CheckpointTensor& single : run.singles) {
    tensors_.push_back(single);
    tensors_.back().stored_bytes = BytesOf(single);
    places_.emplace_back(-1, static_cast<int32_t>(segments_.size()));
    segments_.push_back({.kind = single.key.kind,
                         .dtype = single.dtype,
                         .num_elements = single.shape.num_elements()});
  }
}

void LiveCheckpoint::AddFlatSegments(const LiveRun& run) {
  if (run.states.size() != run.flat_groups.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "every flat group needs its kinds of state");
  }
  for (size_t group = 0; group < run.states.size(); ++group) {
    const int64_t num_elements =
        layout_.partitioning.groups()[group].partition_elements;
    for (const auto& [kind, dtype] : run.states[group]) {
      first_segment_.emplace(std::pair(static_cast<int32_t>(group), kind),
                             static_cast<int32_t>(segments_.size()));
      for (int32_t rank = 0; rank < run.num_ranks; ++rank) {
        segments_.push_back({.rank = rank,
                             .kind = kind,
                             .flat_group = static_cast<int32_t>(group),
                             .dtype = dtype,
                             .num_elements = num_elements});
      }
    }
  }
}

void LiveCheckpoint::AddCutTensors(const LiveRun& run, int32_t parameter) {
  const int32_t group = layout_.partitioning.flat_group_of(parameter);
  if (group < 0) return;
  const ParameterSpec& spec = run.parameters[static_cast<size_t>(parameter)];
  CheckpointTensor tensor{
      .shape = spec.shape, .group = spec.group, .optimizer = spec.optimizer};
  for (const auto& [kind, dtype] : run.states[static_cast<size_t>(group)]) {
    tensor.key = {spec.name, kind};
    tensor.dtype = dtype;
    tensor.stored_bytes = BytesOf(tensor);
    tensors_.push_back(tensor);
    places_.emplace_back(parameter, -1);
  }
  tensor.key = {spec.name, StateKind(kWeight)};
  tensor.dtype = spec.weight_dtype;
  tensor.derived = true;
  tensor.stored_bytes = 0;
  tensors_.push_back(tensor);
  places_.emplace_back(parameter, -1);
}

std::vector<Fragment> LiveCheckpoint::fragments(size_t tensor) const {
  const CheckpointTensor& of = tensors_[tensor];
  const auto [parameter, segment] = places_[tensor];
  const int64_t num_elements = of.shape.num_elements();
  if (parameter < 0) {
    if (num_elements == 0) return {};
    return {{.length = num_elements, .segment = segment}};
  }
  const Partitioning& partitioning = layout_.partitioning;
  std::vector<Fragment> fragments = partitioning.fragments(parameter);
  const auto num_groups = static_cast<int32_t>(partitioning.groups().size());
  const StateKind kind = of.derived ? StateKind(kMaster) : of.key.kind;
  const int32_t first =
      first_segment_.at({partitioning.flat_group_of(parameter), kind});
  for (Fragment& fragment : fragments) {
    fragment.segment = first + fragment.segment / num_groups;
  }
  return fragments;
}

void LiveCheckpoint::ReadSegment(int32_t segment, int64_t /*first_element*/,
                                 std::span<std::byte> /*out*/) const {
  throw Error(ErrorCode::kInternal, "a live run is not read",
              {.tensor = segments_.at(static_cast<size_t>(segment)).kind});
}

}  // namespace muonstore::python
