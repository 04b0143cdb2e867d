#include "muonstore/copy_plan.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/partition/copy_ops.h"
#include "src/partition/runs.h"

namespace muonstore {
namespace {

[[noreturn]] void ThrowAt(ElementRange range, const char* problem) {
  throw Error(ErrorCode::kDataLoss, StrCat("elements [", range.begin, ", ",
                                           range.end, ") ", problem));
}

// Ascending; what lies twice or more in the list.
std::vector<ElementRange> Overlaps(std::span<const Fragment> fragments) {
  return CheckCoverage(fragments, std::numeric_limits<int64_t>::max())
      .overlapping;
}

// No two fragments may write to the same place of a segment.
void RequireDisjointPlaces(std::span<const Fragment> dest) {
  struct Place {
    int32_t segment;
    int64_t begin;
    int64_t end;
    ElementRange elements;
  };
  std::vector<Place> places;
  places.reserve(dest.size());
  for (const Fragment& fragment : dest) {
    const int64_t begin = fragment.segment_offset;
    places.push_back(
        {fragment.segment,
         begin,
         begin + fragment.num_elements(),
         {fragment.tensor_offset, fragment.tensor_offset + fragment.length}});
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::tie(a.segment, a.begin) < std::tie(b.segment, b.begin);
  });
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i].segment == places[i - 1].segment &&
        places[i].begin < places[i - 1].end) {
      ThrowAt(places[i].elements,
              "would be written over other elements of the tensor");
    }
  }
}

// `ranges` ascend; throws for the first place that the destination needs.
void RequireNotNeeded(const std::vector<ElementRange>& ranges,
                      std::span<const Fragment> dest) {
  auto range = ranges.begin();
  for (RunStream runs(dest); !runs.done(); runs.Pop()) {
    const Run& run = runs.front();
    while (range != ranges.end() && range->end <= run.begin) {
      ++range;
    }
    if (range == ranges.end()) {
      return;
    }
    if (range->begin < run.end) {
      ThrowAt(
          {std::max(range->begin, run.begin), std::min(range->end, run.end)},
          "are stored twice or more in the source");
    }
  }
}

// Where tensor element `position` of a run lies in the fragment's segment.
int64_t SegmentPosition(const Fragment& fragment, const Run& run,
                        int64_t position) {
  return fragment.segment_offset + run.index * fragment.length + position -
         run.begin;
}

// Walks over both lists in the order of the tensor.
class Sweep {
 public:
  Sweep(std::span<const Fragment> source, std::span<const Fragment> dest)
      : source_(source), dest_(dest), source_runs_(source) {}

  std::vector<CopyOp> Copies() && {
    for (RunStream runs(dest_); !runs.done(); runs.Pop()) {
      FillRun(runs.front());
    }
    return std::move(copies_).Take();
  }

 private:
  void FillRun(const Run& to) {
    int64_t position = to.begin;
    while (position < to.end) {
      while (!source_runs_.done() && source_runs_.front().end <= position) {
        source_runs_.Pop();
      }
      if (source_runs_.done()) {
        ThrowAt({position, to.end}, "are missing in the source");
      }
      const Run& from = source_runs_.front();
      if (from.begin > position) {
        ThrowAt({position, std::min(from.begin, to.end)},
                "are missing in the source");
      }
      const int64_t end = std::min(from.end, to.end);
      Add(from, to, {position, end});
      position = end;
    }
  }

  void Add(const Run& from, const Run& to, ElementRange range) {
    const Fragment& source = source_[from.fragment];
    const Fragment& dest = dest_[to.fragment];
    const CopyOp op{.source_segment = source.segment,
                    .dest_segment = dest.segment,
                    .source_offset = SegmentPosition(source, from, range.begin),
                    .dest_offset = SegmentPosition(dest, to, range.begin),
                    .length = range.size()};
    if (source.count == 1 && dest.count == 1) {
      copies_.AddSingle(op);
    } else {
      copies_.AddRun(from.fragment * dest_.size() + to.fragment, op);
    }
  }

  std::span<const Fragment> source_;
  std::span<const Fragment> dest_;
  RunStream source_runs_;
  CopyCollector copies_;
};

}  // namespace

std::vector<CopyOp> PlanCopy(std::span<const Fragment> source,
                             std::span<const Fragment> dest) {
  CheckFragments(source);
  CheckFragments(dest);
  const std::vector<ElementRange> doubled = Overlaps(dest);
  if (!doubled.empty()) {
    ThrowAt(doubled.front(), "are asked for twice in the destination");
  }
  RequireDisjointPlaces(dest);
  const std::vector<ElementRange> replicated = Overlaps(source);
  if (!replicated.empty()) {
    RequireNotNeeded(replicated, dest);
  }
  return MergeOps(Sweep(source, dest).Copies());
}

}  // namespace muonstore
