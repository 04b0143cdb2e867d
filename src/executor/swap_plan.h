// How a step's elements are cut into units, and the staging buffers they need.
//
// What: rounds and matrices that are done in place for Muon, ranges of segments
//   for Adam and for norms. Where all state is memory, units need no buffer and
//   are as large as can be.
// Threads: plain values; a function of the store, the chunk plan and options.
// Failures: Error(kResourceExhausted) for a limit that the user set and that
//   one unit alone exceeds.

#ifndef MUONSTORE_SRC_EXECUTOR_SWAP_PLAN_H_
#define MUONSTORE_SRC_EXECUTOR_SWAP_PLAN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "muonstore/executor.h"
#include "src/executor/chunk_plan.h"
#include "src/executor/unit.h"

namespace muonstore {

// Of a rank's staging buffers, unless a limit is set or matrices are larger.
inline constexpr uint64_t kDefaultSwapBytes = uint64_t{256} << 20;

inline constexpr std::array kNormKinds = {
    StagedKind{kGradient, StageUse::kRead}};
inline constexpr std::array kAdamKinds = {
    StagedKind{kGradient, StageUse::kRead},
    StagedKind{kMaster, StageUse::kUpdate},
    StagedKind{kExpAvg, StageUse::kUpdate},
    StagedKind{kExpAvgSq, StageUse::kUpdate},
    StagedKind{kWeight, StageUse::kReplace}};
inline constexpr std::array kMuonKinds = {
    StagedKind{kGradient, StageUse::kScratch},
    StagedKind{kMomentum, StageUse::kUpdate},
    StagedKind{kMaster, StageUse::kUpdate},
    StagedKind{kWeight, StageUse::kReplace}};
// Where updates are clipped by their own norm, they wait for it as gradients.
inline constexpr std::array kUpdateKinds = {
    StagedKind{kGradient, StageUse::kEdit},
    StagedKind{kMomentum, StageUse::kUpdate}};
inline constexpr std::array kApplyKinds = {
    StagedKind{kGradient, StageUse::kRead},
    StagedKind{kMaster, StageUse::kUpdate},
    StagedKind{kWeight, StageUse::kReplace}};

// Where a piece of a matrix lies in its rank's segment.
inline SegmentRun RunOf(const MatrixTask& task, const MatrixPiece& piece) {
  return {.flat_group = task.flat_group,
          .first = piece.segment_offset,
          .count = piece.length};
}

// A Muon unit with the tasks of the chunk plan that have elements in it.
struct TaskUnit {
  Unit unit;
  std::vector<size_t> tasks;
};

struct SwapPlan {
  std::vector<Unit> norm_units;
  std::vector<Unit> adam_units;    // Each of one flat group.
  std::vector<TaskUnit> in_place;  // This rank's.
  std::vector<TaskUnit> rounds;    // By round; what this rank holds of it.
  int32_t num_buffers = 0;
  uint64_t buffer_bytes = 0;

  uint64_t total_bytes() const {
    return static_cast<uint64_t>(num_buffers) * buffer_bytes;
  }
};

struct SwapOptions {
  SwapMode mode = SwapMode::kPipelined;
  // See ExecutorOptions::max_swap_bytes.
  uint64_t max_swap_bytes = 0;
  // Whether the device works a round behind (ChunkPlanOptions::in_place false).
  bool in_place = true;
};

// Plans chunks so small that their units fit, as far as matrices let it, and
// the units with them. `chunks` becomes the plan that was settled on, which is
// the same on every rank.
SwapPlan PlanSwap(const StateStore::Impl& store, const SwapOptions& options,
                  const ChunkPlanOptions& chunk_options, ChunkPlan& chunks);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_SWAP_PLAN_H_
