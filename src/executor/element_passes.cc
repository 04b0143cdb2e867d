#include "src/executor/element_passes.h"

#include <algorithm>
#include <functional>

#include "src/executor/slices.h"
#include "src/kernel/muon_update.h"

namespace muonstore {
namespace {

void ForEachRun(ThreadPool& pool, std::span<const UpdateRun> runs,
                const std::function<void(const UpdateRun&, size_t)>& body) {
  pool.ParallelFor(static_cast<int64_t>(runs.size()), [&](int64_t i) {
    const auto index = static_cast<size_t>(i);
    body(runs[index], index);
  });
}

}  // namespace

std::vector<UpdateRun> SplitRuns(std::span<const UpdateRun> runs) {
  std::vector<UpdateRun> split;
  for (UpdateRun run : runs) {
    const int64_t end = run.at.end();
    for (; run.at.first < end; run.at.first += kSliceElements) {
      run.at.count = std::min(kSliceElements, end - run.at.first);
      split.push_back(run);
    }
  }
  return split;
}

std::vector<UpdateRun> SplitRuns(const Unit& unit) {
  std::vector<UpdateRun> runs;
  for (const SegmentRun& window : unit) runs.push_back({.at = window});
  return SplitRuns(runs);
}

ExactSum ElementPasses::SumSquares(const Stage& stage,
                                   std::span<const UpdateRun> runs) {
  std::vector<ExactSum> sums(runs.size());
  ForEachRun(pool_, runs, [&](const UpdateRun& run, size_t i) {
    sums[i].AddSquares(stage.state(kGradient, run.at).in,
                       static_cast<float>(run.scale));
  });
  // Exact, so that their order does not matter.
  ExactSum total;
  for (const ExactSum& sum : sums) total.Merge(sum);
  return total;
}

void ElementPasses::Momentum(const Stage& stage,
                             std::span<const UpdateRun> runs,
                             std::span<const MomentumParams> params) {
  ForEachRun(pool_, runs, [&](const UpdateRun& run, size_t /*i*/) {
    UpdateMomentum(params[static_cast<size_t>(run.group)],
                   stage.f32(kGradient, run.at),
                   stage.state(kMomentum, run.at));
  });
}

void ElementPasses::Adam(const Stage& stage, const Unit& unit,
                         const AdamParams& params) {
  ForEachRun(pool_, SplitRuns(unit), [&](const UpdateRun& run, size_t /*i*/) {
    AdamStep(params, stage.state(kGradient, run.at).in,
             {.master = stage.state(kMaster, run.at),
              .exp_avg = stage.state(kExpAvg, run.at),
              .exp_avg_sq = stage.state(kExpAvgSq, run.at)},
             stage.weights(run.at));
  });
}

void ElementPasses::ApplyUpdates(const Stage& stage,
                                 std::span<const UpdateRun> runs,
                                 std::span<const GroupHyperParameters> groups,
                                 double factor) {
  ForEachRun(pool_, runs, [&](const UpdateRun& run, size_t /*i*/) {
    const GroupHyperParameters& group = groups[static_cast<size_t>(run.group)];
    ApplyMuonUpdate({.lr = group.lr,
                     .weight_decay = group.weight_decay,
                     .scale = run.scale * factor},
                    stage.state(kGradient, run.at).in,
                    stage.state(kMaster, run.at), stage.weights(run.at));
  });
}

}  // namespace muonstore
