#include "src/checkpoint/store_checkpoint.h"

#include <algorithm>
#include <string>

#include "src/base/str.h"

namespace muonstore {

StoreCheckpoint::StoreCheckpoint(const StateStore& store,
                                 const Snapshot& snapshot,
                                 const RunDescription& run)
    : store_(store),
      snapshot_(snapshot),
      info_(DescribeStore(store, snapshot.record(), run)) {
  AddSegments();
  for (size_t i = 0; i < store.parameters().size(); ++i) {
    AddTensors(static_cast<int32_t>(i));
  }
}

void StoreCheckpoint::AddSegments() {
  for (int32_t rank = 0; rank < info_.num_ranks; ++rank) {
    for (const SnapshotSegment& of : snapshot_.segments()) {
      segments_.push_back({.rank = rank,
                           .kind = std::string(of.kind),
                           .flat_group = of.flat_group,
                           .dtype = of.dtype,
                           .num_elements = of.num_elements});
    }
  }
  for (size_t i = 0; i < snapshot_.segments().size(); ++i) {
    const SnapshotSegment& of = snapshot_.segments()[i];
    segment_index_.emplace(std::pair(of.kind, of.flat_group), i);
  }
}

void StoreCheckpoint::AddTensors(int32_t parameter) {
  const ParameterSpec& spec =
      store_.parameters()[static_cast<size_t>(parameter)];
  const int32_t flat_group = store_.partitioning().flat_group_of(parameter);
  for (const StateKind& kind : store_.kinds(parameter)) {
    if (kind == kGradient) continue;
    CheckpointTensor tensor{.key = {spec.name, kind},
                            .shape = spec.shape,
                            .group = spec.group,
                            .optimizer = spec.optimizer};
    if (kind == kWeight) {
      tensor.dtype = spec.weight_dtype;
      tensor.derived = !segment_index_.contains({kWeight, flat_group});
    }
    if (!tensor.derived) {
      tensor.stored_bytes = static_cast<uint64_t>(spec.shape.num_elements() *
                                                  SizeBytes(tensor.dtype));
    }
    tensors_.push_back(std::move(tensor));
    parameter_of_.push_back(parameter);
  }
}

std::vector<Fragment> StoreCheckpoint::fragments(size_t tensor) const {
  const int32_t parameter = parameter_of_[tensor];
  const CheckpointTensor& of = tensors_[tensor];
  const Partitioning& partitioning = store_.partitioning();
  const auto num_groups = static_cast<int32_t>(partitioning.groups().size());
  std::vector<Fragment> fragments = partitioning.fragments(parameter);
  if (fragments.empty()) return fragments;
  const std::string_view kind = of.key.kind;
  const size_t index = segment_index_.at(
      {of.derived ? kMaster : kind, partitioning.flat_group_of(parameter)});
  for (Fragment& fragment : fragments) {
    const auto rank = static_cast<size_t>(fragment.segment / num_groups);
    fragment.segment =
        static_cast<int32_t>(rank * snapshot_.segments().size() + index);
  }
  return fragments;
}

void StoreCheckpoint::ReadSegment(int32_t segment, int64_t first_element,
                                  std::span<std::byte> out) const {
  const Segment& of = segments_.at(static_cast<size_t>(segment));
  if (of.rank != store_.rank()) {
    throw Error(ErrorCode::kUnsupported,
                StrCat("these elements lie on rank ", of.rank,
                       "; save the store in the native format and convert that "
                       "checkpoint"),
                {.tensor = of.kind});
  }
  const auto item_bytes = static_cast<uint64_t>(SizeBytes(of.dtype));
  const auto offset = static_cast<uint64_t>(first_element) * item_bytes;
  const uint64_t size = static_cast<uint64_t>(of.num_elements) * item_bytes;
  if (first_element < 0 || offset > size || out.size() > size - offset) {
    throw Error(ErrorCode::kInvalidArgument,
                "the range is outside of the segment", {.tensor = of.kind});
  }
  snapshot_
      .Read(static_cast<size_t>(segment) % snapshot_.segments().size(), offset,
            out)
      ->Wait();
}

}  // namespace muonstore
