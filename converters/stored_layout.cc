#include "converters/stored_layout.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/partition/zero_rules.h"
#include "src/state/tensor_index.h"

namespace muonstore {
namespace {

// Where the first element of a master lies.
struct Place {
  size_t tensor = 0;
  int32_t flat_group = -1;
  int32_t rank = 0;
  int64_t offset = 0;
};

DType PrecisionDType(const std::string& precision) {
  if (precision == "bf16") return DType::kBF16;
  return precision == "fp16" ? DType::kF16 : DType::kF32;
}

class LayoutFinder {
 public:
  explicit LayoutFinder(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint),
        index_(checkpoint),
        stage_(checkpoint.info().stage.value_or(0)) {}

  StoredLayout Run() {
    CollectPlaces();
    for (const Place& place : places_) AddSpec(place.tensor);
    for (const size_t tensor : empty_) AddSpec(tensor);
    const bool is_cut =
        stage_ > 0 && !places_.empty() && places_.front().flat_group >= 0;
    if (is_cut) AddGroups();
    return std::move(layout_);
  }

 private:
  const CheckpointTensor& tensor(size_t index) const {
    return checkpoint_.tensors()[index];
  }

  void CollectPlaces() {
    for (size_t i = 0; i < checkpoint_.tensors().size(); ++i) {
      if (tensor(i).key.kind != kMaster || tensor(i).group < 0) continue;
      if (tensor(i).shape.num_elements() == 0) {
        empty_.push_back(i);
      } else {
        places_.push_back(PlaceOf(i));
      }
    }
    std::stable_sort(places_.begin(), places_.end(),
                     [](const Place& a, const Place& b) {
                       return std::tie(a.flat_group, a.rank, a.offset) <
                              std::tie(b.flat_group, b.rank, b.offset);
                     });
  }

  Place PlaceOf(size_t index) {
    const std::vector<Fragment> fragments = checkpoint_.fragments(index);
    Place place{.tensor = index};
    for (const Fragment& fragment : fragments) {
      const Segment& segment =
          checkpoint_.segments()[static_cast<size_t>(fragment.segment)];
      if (segment.rank > 0) crosses_[segment.flat_group] = true;
      if (fragment.tensor_offset == 0) {
        place.flat_group = segment.flat_group;
        place.rank = segment.rank;
        place.offset = fragment.segment_offset;
      }
    }
    return place;
  }

  void AddSpec(size_t index) {
    const CheckpointTensor& master = tensor(index);
    const auto weight =
        index_.Find({master.key.parameter, std::string(kWeight)});
    layout_.specs.push_back(
        {.name = master.key.parameter,
         .shape = master.shape,
         .weight_dtype = weight ? tensor(*weight).dtype
                                : PrecisionDType(checkpoint_.info().precision),
         .group = master.group,
         .optimizer = master.optimizer});
  }

  void AddGroups() {
    for (size_t i = 0; i < places_.size(); ++i) {
      if (i == 0 || places_[i].flat_group != places_[i - 1].flat_group) {
        layout_.groups.push_back({.group = tensor(places_[i].tensor).group});
      }
      layout_.groups.back().parameters.push_back(static_cast<int32_t>(i));
    }
    if (stage_ == 3) return;  // Pieces follow one another without padding.
    for (FlatGroup& group : layout_.groups) AddPaddings(group);
  }

  int64_t MasterElementsOfRankZero(int32_t flat_group) const {
    for (const Segment& segment : checkpoint_.segments()) {
      if (segment.rank == 0 && segment.flat_group == flat_group &&
          segment.kind == kMaster) {
        return segment.num_elements;
      }
    }
    return 0;
  }

  void AddPaddings(FlatGroup& group) {
    const auto first = static_cast<size_t>(group.parameters.front());
    const int32_t flat_group = places_[first].flat_group;
    // Where elements lie beyond rank 0, its partition has no padding.
    const int64_t partition = MasterElementsOfRankZero(flat_group);
    int64_t end = 0;
    for (const int32_t parameter : group.parameters) {
      const Place& place = places_[static_cast<size_t>(parameter)];
      const int64_t begin = place.rank * partition + place.offset;
      if (begin < end || (group.pad_after.empty() && begin != 0)) {
        throw Error(ErrorCode::kUnsupported,
                    "the masters are not cut as ZeRO cuts them",
                    {.file = checkpoint_.info().path,
                     .tensor = tensor(place.tensor).key.ToString()});
      }
      if (!group.pad_after.empty()) group.pad_after.back() = begin - end;
      group.pad_after.push_back(0);
      end = begin + tensor(place.tensor).shape.num_elements();
    }
    group.partition_elements = partition;
    if (!crosses_[flat_group]) {
      // Files leave out the padding of the last rank that holds anything.
      const int64_t ranks = checkpoint_.info().num_ranks;
      const int64_t alignment = ZeroRule().flat_alignment_elements;
      group.partition_elements =
          std::max(partition, RoundUp(end, alignment * ranks) / ranks);
    }
  }

  const Checkpoint& checkpoint_;
  TensorIndex index_;
  int32_t stage_;
  std::vector<Place> places_;
  std::vector<size_t> empty_;
  std::map<int32_t, bool> crosses_;  // By flat group: more than rank 0.
  StoredLayout layout_;
};

}  // namespace

StoredLayout StoredLayoutOf(const Checkpoint& checkpoint) {
  return LayoutFinder(checkpoint).Run();
}

int64_t SubGroupSizeOf(const StoredLayout& layout, int32_t num_ranks,
                       int64_t default_size) {
  int64_t size = default_size;
  for (size_t i = 0; i + 1 < layout.groups.size(); ++i) {
    if (layout.groups[i].group != layout.groups[i + 1].group) continue;
    int64_t sum = 0;  // A sub-group that another follows was closed.
    for (const int32_t parameter : layout.groups[i].parameters) {
      const auto& spec = layout.specs[static_cast<size_t>(parameter)];
      sum += CeilDivide(spec.shape.num_elements(), num_ranks);
    }
    size = std::min(size, sum);
  }
  return size;
}

bool HasSubGroupSize(const StoredLayout& layout, int32_t num_ranks,
                     int64_t size) {
  for (size_t i = 0; i < layout.groups.size(); ++i) {
    const FlatGroup& flat = layout.groups[i];
    int64_t sum = 0;
    for (const int32_t parameter : flat.parameters) {
      if (sum >= size) return false;  // It would have been closed before.
      const auto& spec = layout.specs[static_cast<size_t>(parameter)];
      sum += CeilDivide(spec.shape.num_elements(), num_ranks);
    }
    const bool is_followed = i + 1 < layout.groups.size() &&
                             layout.groups[i + 1].group == flat.group;
    if (is_followed && sum < size) return false;
  }
  return true;
}

}  // namespace muonstore
