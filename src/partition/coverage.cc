#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "muonstore/copy_plan.h"
#include "muonstore/error.h"
#include "src/partition/runs.h"

namespace muonstore {
namespace {

// Joins `next` to `block` where both have their runs side by side.
bool JoinSideBySide(Fragment& block, const Fragment& next) {
  const bool joins = block.count == next.count && block.stride == next.stride &&
                     block.tensor_offset + block.length == next.tensor_offset;
  block.length += joins ? next.length : 0;
  return joins;
}

// The same elements, as often, in fewer fragments; segments no longer mean
// anything, and runs of one fragment may overlap. The columns of a sharded
// matrix become one contiguous range, so that a coverage proof need not walk
// over its rows.
std::vector<Fragment> JoinColumns(std::span<const Fragment> fragments) {
  std::vector<Fragment> sorted(fragments.begin(), fragments.end());
  for (Fragment& fragment : sorted) {
    fragment.stride = fragment.count == 1 ? 0 : fragment.stride;
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Fragment& a, const Fragment& b) {
              return std::tie(a.stride, a.count, a.tensor_offset) <
                     std::tie(b.stride, b.count, b.tensor_offset);
            });
  std::vector<Fragment> joined;
  for (const Fragment& fragment : sorted) {
    if (joined.empty() || !JoinSideBySide(joined.back(), fragment)) {
      joined.push_back(fragment);
    }
  }
  for (Fragment& block : joined) {
    if (block.count > 1 && block.length == block.stride) {
      block.length *= block.count;
      block.count = 1;
      block.stride = 0;
    }
  }
  return joined;
}

}  // namespace

Coverage CheckCoverage(std::span<const Fragment> fragments,
                       int64_t num_elements) {
  if (num_elements < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "the element count of a tensor is negative",
                {.found = std::to_string(num_elements)});
  }
  CheckFragments(fragments);
  const std::vector<Fragment> blocks = JoinColumns(fragments);
  Coverage coverage;
  // [0, covered) is covered but for the ranges in `missing`.
  int64_t covered = 0;
  for (RunStream runs(blocks); !runs.done(); runs.Pop()) {
    const Run& run = runs.front();
    const int64_t end = std::min(run.end, num_elements);
    AppendRange(coverage.outside, {std::max(run.begin, num_elements), run.end});
    AppendRange(coverage.missing, {covered, std::min(run.begin, num_elements)});
    AppendRange(coverage.overlapping, {run.begin, std::min(end, covered)});
    covered = std::max(covered, end);
  }
  AppendRange(coverage.missing, {covered, num_elements});
  return coverage;
}

}  // namespace muonstore
