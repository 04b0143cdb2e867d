#include "formats/native/layout.h"

#include <limits>
#include <set>
#include <utility>

#include "src/base/str.h"

namespace muonstore::native {
namespace {

[[noreturn]] void Contradiction(std::string message,
                                const std::string& tensor = {}) {
  throw Error(ErrorCode::kDataLoss,
              "the manifest contradicts itself: " + std::move(message),
              {.tensor = tensor});
}

// The rule's own checks, as damage of the file that names the rule.
Partitioning BuildPartitioning(const Manifest& manifest) {
  try {
    return Partitioning::FromGroups(manifest.parameters, manifest.rule,
                                    manifest.flat_groups);
  } catch (const Error& error) {
    Contradiction(error.message(), error.place().tensor);
  }
}

// What is written twice, for readers that need one part alone, says the same.
void CheckDescriptions(const Manifest& manifest) {
  const CheckpointInfo& info = manifest.info;
  if (info.num_ranks != manifest.rule.num_ranks ||
      info.stage != manifest.rule.stage) {
    Contradiction("run and rule name another stage or number of ranks");
  }
  for (const FlatGroup& flat : manifest.flat_groups) {
    const auto group = static_cast<size_t>(flat.group);
    for (const int32_t parameter : flat.parameters) {
      const ParameterSpec& spec =
          manifest.parameters[static_cast<size_t>(parameter)];
      if (spec.group != flat.group || group >= info.groups.size()) {
        Contradiction("its param group is not its flat group's", spec.name);
      }
      if (spec.optimizer != info.groups[group].optimizer) {
        Contradiction("its optimizer is not its param group's", spec.name);
      }
    }
  }
}

// Of a tensor of one of `parameters` that an optimizer updates.
void CheckOwner(const ManifestTensor& entry, const Manifest& manifest) {
  if (entry.parameter < 0) {
    return;
  }
  const ParameterSpec& spec =
      manifest.parameters[static_cast<size_t>(entry.parameter)];
  if (spec.optimizer != Optimizer::kNone &&
      (entry.tensor.group != spec.group ||
       entry.tensor.optimizer != spec.optimizer)) {
    Contradiction("its param group or optimizer is not its parameter's",
                  entry.tensor.key.ToString());
  }
}

void CheckSlot(const Slot& slot, const Partitioning& partitioning) {
  CheckedMultiply(slot.num_elements, SizeBytes(slot.dtype), "a segment");
  if (slot.flat_group < 0) {
    if (slot.rank >= partitioning.num_ranks()) {
      Contradiction(StrCat("a segment lies on rank ", slot.rank));
    }
    return;
  }
  const auto groups = partitioning.groups();
  if (static_cast<size_t>(slot.flat_group) >= groups.size() ||
      groups[static_cast<size_t>(slot.flat_group)].partition_elements !=
          slot.num_elements) {
    Contradiction(StrCat("a segment of flat group ", slot.flat_group,
                         " has another size than its partition"));
  }
}

void CheckMissing(const CheckpointTensor& tensor) {
  int64_t end = 0;
  for (const ElementRange& range : tensor.missing) {
    if (range.begin < end || range.end <= range.begin ||
        range.end > tensor.shape.num_elements()) {
      Contradiction("missing elements outside of the tensor",
                    tensor.key.ToString());
    }
    end = range.end;
  }
}

}  // namespace

Layout::Layout(const Manifest& manifest)
    : partitioning_(BuildPartitioning(manifest)), slots_(manifest.slots) {
  if (manifest.files.size() != static_cast<size_t>(num_ranks())) {
    Contradiction(StrCat(manifest.files.size(), " rank files for ", num_ranks(),
                         " ranks"));
  }
  CheckDescriptions(manifest);
  PlaceSlots(manifest);
  CheckTensors(manifest);
}

void Layout::PlaceSlots(const Manifest& manifest) {
  position_.assign(slots_.size(), 0);
  std::vector<std::vector<int32_t>> singles(manifest.files.size());
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    CheckSlot(slot, partitioning_);
    if (slot.flat_group >= 0) {
      if (i != num_flat_slots_) {
        Contradiction("slots of flat groups stand behind others");
      }
      ++num_flat_slots_;
      continue;
    }
    auto& of_rank = singles[static_cast<size_t>(slot.rank)];
    position_[i] = static_cast<int32_t>(of_rank.size());
    of_rank.push_back(static_cast<int32_t>(i));
  }
  for (int32_t rank = 0; rank < num_ranks(); ++rank) {
    const auto index = static_cast<size_t>(rank);
    first_of_rank_.push_back(segments_.size());
    // A list of offsets in the file stands behind each segment: memory is
    // bounded by the manifest.
    if (manifest.files[index].segment_offsets.size() !=
        num_flat_slots_ + singles[index].size()) {
      Contradiction(StrCat("rank ", rank, " has another number of segments"));
    }
    std::vector<int32_t> all(num_flat_slots_);
    for (size_t i = 0; i < num_flat_slots_; ++i) {
      all[i] = static_cast<int32_t>(i);
    }
    all.insert(all.end(), singles[index].begin(), singles[index].end());
    for (const int32_t i : all) {
      const Slot& slot = slots_[static_cast<size_t>(i)];
      segments_.push_back({.rank = rank,
                           .kind = slot.kind,
                           .flat_group = slot.flat_group,
                           .dtype = slot.dtype,
                           .num_elements = slot.num_elements});
      slot_of_.push_back(i);
    }
  }
  first_of_rank_.push_back(segments_.size());
  if (segments_.size() >
      static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    Contradiction("too many segments");
  }
}

void Layout::CheckTensors(const Manifest& manifest) const {
  std::set<TensorKey> keys;
  std::set<std::pair<int32_t, int32_t>> places;  // Slot and parameter.
  for (const ManifestTensor& entry : manifest.tensors) {
    const CheckpointTensor& tensor = entry.tensor;
    const std::string name = tensor.key.ToString();
    if (!keys.insert(tensor.key).second) {
      Contradiction("a tensor occurs twice", name);
    }
    if (tensor.group >= static_cast<int32_t>(manifest.info.groups.size())) {
      Contradiction("there is no such param group", name);
    }
    CheckMissing(tensor);
    CheckOwner(entry, manifest);
    if (tensor.shape.num_elements() == 0) {
      continue;
    }
    if (entry.slot < 0 || static_cast<size_t>(entry.slot) >= slots_.size()) {
      Contradiction("there is no such segment", name);
    }
    const Slot& slot = slots_[static_cast<size_t>(entry.slot)];
    const bool flat = slot.flat_group >= 0;
    const bool fits =
        flat ? entry.parameter >= 0 &&
                   partitioning_.flat_group_of(entry.parameter) ==
                       slot.flat_group &&
                   manifest.parameters[static_cast<size_t>(entry.parameter)]
                           .shape == tensor.shape
             : slot.num_elements == tensor.shape.num_elements();
    const bool same_kind =
        tensor.derived
            ? slot.kind == kMaster && slot.dtype == DType::kF32
            : slot.kind == tensor.key.kind && slot.dtype == tensor.dtype;
    if (!fits || !same_kind) {
      Contradiction("its segment is another's", name);
    }
    if (!tensor.derived &&
        !places.emplace(entry.slot, flat ? entry.parameter : -1).second) {
      Contradiction("two tensors lie in one place", name);
    }
  }
}

int32_t Layout::SegmentOf(int32_t rank, int32_t slot) const {
  const auto index = static_cast<size_t>(slot);
  const size_t within =
      index < num_flat_slots_
          ? index
          : num_flat_slots_ + static_cast<size_t>(position_[index]);
  return static_cast<int32_t>(first_segment(rank) + within);
}

std::vector<Fragment> Layout::fragments(const ManifestTensor& entry) const {
  const int64_t num_elements = entry.tensor.shape.num_elements();
  if (num_elements == 0) {
    return {};
  }
  const Slot& slot = slots_[static_cast<size_t>(entry.slot)];
  if (slot.flat_group < 0) {
    return {
        {.length = num_elements, .segment = SegmentOf(slot.rank, entry.slot)}};
  }
  std::vector<Fragment> fragments = partitioning_.fragments(entry.parameter);
  const auto num_groups = static_cast<int32_t>(partitioning_.groups().size());
  for (Fragment& fragment : fragments) {
    fragment.segment = SegmentOf(fragment.segment / num_groups, entry.slot);
  }
  return fragments;
}

std::vector<Fragment> Layout::present_fragments(
    const ManifestTensor& entry) const {
  std::vector<Fragment> all = fragments(entry);
  if (entry.tensor.missing.empty()) {
    return all;
  }
  std::vector<Fragment> present;
  ElementRange range;
  const auto add = [&](int64_t end) {
    range.end = end;
    const std::vector<Fragment> part = Restrict(all, range);
    present.insert(present.end(), part.begin(), part.end());
  };
  for (const ElementRange& missing : entry.tensor.missing) {
    add(missing.begin);
    range.begin = missing.end;
  }
  add(entry.tensor.shape.num_elements());
  return present;
}

uint64_t Layout::segment_bytes(size_t segment) const {
  const Segment& info = segments_[segment];
  return static_cast<uint64_t>(info.num_elements * SizeBytes(info.dtype));
}

}  // namespace muonstore::native
