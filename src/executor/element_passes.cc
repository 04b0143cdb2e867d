#include "src/executor/element_passes.h"

#include <algorithm>
#include <vector>

#include "src/executor/slices.h"
#include "src/kernel/muon_update.h"

namespace muonstore {
namespace {

std::span<float> Part(std::span<float> all, int64_t first, int64_t count) {
  return all.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
}

// Sums of any number of slices, merged in any order: they are exact.
ExactSum MergeAll(std::span<const ExactSum> sums) {
  ExactSum total;
  for (const ExactSum& sum : sums) total.Merge(sum);
  return total;
}

}  // namespace

std::vector<UpdateRun> SplitRuns(std::span<const UpdateRun> runs) {
  std::vector<UpdateRun> split;
  for (UpdateRun run : runs) {
    const int64_t end = run.first + run.count;
    for (; run.first < end; run.first += kSliceElements) {
      run.count = std::min(kSliceElements, end - run.first);
      split.push_back(run);
    }
  }
  return split;
}

ExactSum ElementPasses::SumGradients(int32_t flat_group, float factor) const {
  const std::span<float> gradients =
      store_.segments->f32(kGradient, flat_group);
  const auto size = static_cast<int64_t>(gradients.size());
  std::vector<ExactSum> sums(static_cast<size_t>(NumSlices(size)));
  ForEachSlice(pool_, size, [&](int64_t first, int64_t count, int64_t slice) {
    sums[static_cast<size_t>(slice)].AddSquares(Part(gradients, first, count),
                                                factor);
  });
  return MergeAll(sums);
}

ExactSum ElementPasses::SumUpdates(std::span<const UpdateRun> runs) const {
  std::vector<ExactSum> sums(runs.size());
  pool_.ParallelFor(static_cast<int64_t>(runs.size()), [&](int64_t i) {
    const UpdateRun& run = runs[static_cast<size_t>(i)];
    sums[static_cast<size_t>(i)].AddSquares(
        Part(store_.segments->f32(kGradient, run.flat_group), run.first,
             run.count),
        static_cast<float>(run.scale));
  });
  return MergeAll(sums);
}

void ElementPasses::Momentum(int32_t flat_group, const MomentumParams& params) {
  const std::span<float> gradients =
      store_.segments->f32(kGradient, flat_group);
  const std::span<float> momentum = store_.segments->f32(kMomentum, flat_group);
  ForEachSlice(pool_, static_cast<int64_t>(gradients.size()),
               [&](int64_t first, int64_t count, int64_t) {
                 UpdateMomentum(params, Part(gradients, first, count),
                                Part(momentum, first, count));
               });
}

void ElementPasses::Adam(int32_t flat_group, const AdamParams& params) {
  const std::span<float> gradients =
      store_.segments->f32(kGradient, flat_group);
  const std::span<float> master = store_.segments->f32(kMaster, flat_group);
  const std::span<float> exp_avg = store_.segments->f32(kExpAvg, flat_group);
  const std::span<float> exp_avg_sq =
      store_.segments->f32(kExpAvgSq, flat_group);
  ForEachSlice(pool_, static_cast<int64_t>(gradients.size()),
               [&](int64_t first, int64_t count, int64_t) {
                 AdamStep(params, Part(gradients, first, count),
                          {.master = Part(master, first, count),
                           .exp_avg = Part(exp_avg, first, count),
                           .exp_avg_sq = Part(exp_avg_sq, first, count)},
                          WeightsOf(flat_group, first, count));
               });
}

void ElementPasses::ApplyUpdates(std::span<const UpdateRun> runs,
                                 std::span<const GroupHyperParameters> groups,
                                 double factor) {
  pool_.ParallelFor(static_cast<int64_t>(runs.size()), [&](int64_t i) {
    const UpdateRun& run = runs[static_cast<size_t>(i)];
    const GroupHyperParameters& group = groups[static_cast<size_t>(run.group)];
    ApplyMuonUpdate({.lr = group.lr,
                     .weight_decay = group.weight_decay,
                     .scale = run.scale * factor},
                    Part(store_.segments->f32(kGradient, run.flat_group),
                         run.first, run.count),
                    Part(store_.segments->f32(kMaster, run.flat_group),
                         run.first, run.count),
                    WeightsOf(run.flat_group, run.first, run.count));
  });
}

ComputeWeights ElementPasses::WeightsOf(int32_t flat_group, int64_t first,
                                        int64_t count) const {
  const int32_t parameter =
      store_.partitioning.groups()[static_cast<size_t>(flat_group)]
          .parameters.front();
  const DType dtype = store_.dtype(parameter, kWeight);
  const auto element_bytes = static_cast<size_t>(SizeBytes(dtype));
  return {.dtype = dtype,
          .bytes = store_.segments->bytes(kWeight, flat_group)
                       .subspan(static_cast<size_t>(first) * element_bytes,
                                static_cast<size_t>(count) * element_bytes)};
}

}  // namespace muonstore
