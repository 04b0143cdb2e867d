#include "src/partition/copy_ops.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace muonstore {
namespace {

bool SameSegments(const CopyOp& a, const CopyOp& b) {
  return a.source_segment == b.source_segment &&
         a.dest_segment == b.dest_segment;
}

bool SameStrides(const CopyOp& a, const CopyOp& b) {
  return a.source_stride == b.source_stride && a.dest_stride == b.dest_stride;
}

// Appends the runs of `next` behind those of `op` where the distances are those
// that `op` and `next` have inside (a single run has none yet).
bool AppendRuns(CopyOp& op, const CopyOp& next) {
  if (!SameSegments(op, next) || op.length != next.length) {
    return false;
  }
  CopyOp longer = op;
  if (op.count == 1) {
    longer.source_stride = next.source_offset - op.source_offset;
    longer.dest_stride = next.dest_offset - op.dest_offset;
  }
  const bool continues =
      longer.source_stride >= op.length && longer.dest_stride >= op.length &&
      next.source_offset ==
          op.source_offset + op.count * longer.source_stride &&
      next.dest_offset == op.dest_offset + op.count * longer.dest_stride &&
      (next.count == 1 || SameStrides(longer, next));
  if (continues) {
    longer.count += next.count;
    op = longer;
  }
  return continues;
}

// Joins single runs that are neighbours in source and destination.
bool WidenRun(CopyOp& op, const CopyOp& next) {
  const bool joins = SameSegments(op, next) && op.count == 1 &&
                     next.count == 1 &&
                     next.source_offset == op.source_offset + op.length &&
                     next.dest_offset == op.dest_offset + op.length;
  op.length += joins ? next.length : 0;
  return joins;
}

// Runs without gaps in source and destination are one run.
void CloseGaps(CopyOp& op) {
  if (op.count > 1 && op.source_stride == op.length &&
      op.dest_stride == op.length) {
    op.length *= op.count;
    op.count = 1;
    op.source_stride = 0;
    op.dest_stride = 0;
  }
}

std::vector<CopyOp> JoinNeighbours(const std::vector<CopyOp>& ops) {
  std::vector<CopyOp> joined;
  for (CopyOp op : ops) {
    CloseGaps(op);
    if (joined.empty() || !WidenRun(joined.back(), op)) {
      joined.push_back(op);
    }
  }
  return joined;
}

// Rows that came as fragments of their own become strided runs, also where the
// rows of several sources alternate.
std::vector<CopyOp> FoldRows(const std::vector<CopyOp>& ops) {
  std::vector<CopyOp> folded;
  std::map<std::tuple<int32_t, int32_t, int64_t>, size_t> last;
  for (const CopyOp& op : ops) {
    const auto [entry, is_first] = last.try_emplace(
        {op.source_segment, op.dest_segment, op.length}, folded.size());
    if (is_first || !AppendRuns(folded[entry->second], op)) {
      entry->second = folded.size();
      folded.push_back(op);
    }
  }
  return folded;
}

}  // namespace

void CopyCollector::AddRun(uint64_t pair, const CopyOp& op) {
  const auto [entry, is_first] = open_.try_emplace(pair, ops_.size());
  if (is_first || !AppendRuns(ops_[entry->second], op)) {
    entry->second = ops_.size();
    ops_.push_back(op);
  }
}

std::vector<CopyOp> MergeOps(std::vector<CopyOp> ops) {
  std::sort(ops.begin(), ops.end(), [](const CopyOp& a, const CopyOp& b) {
    return std::tie(a.dest_segment, a.dest_offset) <
           std::tie(b.dest_segment, b.dest_offset);
  });
  return FoldRows(JoinNeighbours(ops));
}

}  // namespace muonstore
