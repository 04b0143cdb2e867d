#include <algorithm>

#include "muonstore/copy_plan.h"
#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/partition/runs.h"
#include "src/partition/zero_rules.h"

namespace muonstore {
namespace {

// Runs [first, last) of a fragment, whole.
Fragment WholeRuns(const Fragment& fragment, int64_t first, int64_t last) {
  Fragment result = fragment;
  result.tensor_offset += first * fragment.stride;
  result.segment_offset += first * fragment.length;
  result.count = last - first;
  result.stride = result.count == 1 ? 0 : fragment.stride;
  return result;
}

// The part of one run that lies in `range`; the two must meet.
Fragment PartOfRun(const Fragment& fragment, int64_t run, ElementRange range) {
  Fragment result = WholeRuns(fragment, run, run + 1);
  const int64_t end = std::min(result.tensor_offset + result.length, range.end);
  const int64_t skipped =
      std::max<int64_t>(range.begin - result.tensor_offset, 0);
  result.tensor_offset += skipped;
  result.segment_offset += skipped;
  result.length = end - result.tensor_offset;
  return result;
}

int64_t RunsStartingBefore(const Fragment& fragment, int64_t position) {
  if (position <= fragment.tensor_offset) {
    return 0;
  }
  if (fragment.count == 1) {
    return 1;
  }
  return std::min(fragment.count, CeilDivide(position - fragment.tensor_offset,
                                             fragment.stride));
}

int64_t RunsEndingBy(const Fragment& fragment, int64_t position) {
  const int64_t first_end = fragment.tensor_offset + fragment.length;
  if (position < first_end) {
    return 0;
  }
  if (fragment.count == 1) {
    return 1;
  }
  return std::min(fragment.count, (position - first_end) / fragment.stride + 1);
}

}  // namespace

std::vector<Fragment> Restrict(std::span<const Fragment> fragments,
                               ElementRange range) {
  if (range.begin < 0 || range.end < range.begin) {
    throw Error(ErrorCode::kInvalidArgument, "the element range makes no sense",
                {.found = StrCat("[", range.begin, ", ", range.end, ")")});
  }
  CheckFragments(fragments);
  std::vector<Fragment> result;
  for (const Fragment& fragment : fragments) {
    // Runs [first, last) meet the range; of these, [body, tail) are whole.
    const int64_t first = RunsEndingBy(fragment, range.begin);
    const int64_t last = RunsStartingBefore(fragment, range.end);
    const int64_t body = RunsStartingBefore(fragment, range.begin);
    const int64_t tail = RunsEndingBy(fragment, range.end);
    if (range.size() == 0 || first >= last) {
      continue;
    }
    if (first < body) {
      result.push_back(PartOfRun(fragment, first, range));
    }
    if (body < tail) {
      result.push_back(WholeRuns(fragment, body, tail));
    }
    if (tail < last && tail >= body) {
      result.push_back(PartOfRun(fragment, tail, range));
    }
  }
  return result;
}

}  // namespace muonstore
