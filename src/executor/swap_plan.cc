#include "src/executor/swap_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

// Beyond this a longer unit only delays the overlap.
constexpr uint64_t kUnitBytes = uint64_t{32} << 20;
// Below this a shorter chunk only costs requests.
constexpr uint64_t kMinChunkBytes = uint64_t{256} << 10;

Unit UnitOf(const ChunkPlan& chunks, std::span<const size_t> tasks,
            int32_t rank) {
  std::vector<SegmentRun> runs;
  for (const size_t index : tasks) {
    const MatrixTask& task = chunks.tasks[index];
    for (const MatrixPiece& piece : task.pieces) {
      if (piece.rank != rank) continue;
      runs.push_back(RunOf(task, piece));
    }
  }
  return MakeUnit(std::move(runs));
}

// The largest unit of Muon that any rank cannot do without, and its matrix.
struct Need {
  uint64_t bytes = 0;
  int32_t parameter = -1;
};

Need LargestNeed(const StateStore::Impl& store, const ChunkPlan& chunks) {
  Need need;
  const auto add = [&](std::span<const size_t> tasks, int32_t rank) {
    if (tasks.empty()) return;
    const uint64_t bytes =
        StagedBytes(store, kMuonKinds, UnitOf(chunks, tasks, rank));
    if (bytes > need.bytes) {
      need = {.bytes = bytes,
              .parameter = chunks.tasks[tasks.front()].parameter};
    }
  };
  for (int32_t rank = 0; rank < store.communicator->size(); ++rank) {
    for (const size_t& task : chunks.in_place[static_cast<size_t>(rank)]) {
      add({&task, 1}, rank);
    }
    for (size_t round = 0; round < chunks.num_rounds; ++round) {
      add(chunks.TasksOfRound(round), rank);
    }
  }
  return need;
}

// More than any unit can use.
uint64_t LargestUse(const StateStore::Impl& store) {
  uint64_t largest = 0;
  const auto groups = store.partitioning.groups();
  for (size_t i = 0; i < groups.size(); ++i) {
    const SegmentRun whole{.flat_group = static_cast<int32_t>(i),
                           .count = groups[i].partition_elements};
    uint64_t bytes = 0;
    for (const std::string_view kind : kStoreKinds) {
      if (store.segments->has(kind, whole.flat_group)) {
        bytes += StagedBytes(store, kind, whole);
      }
    }
    largest = std::max(largest, bytes);
  }
  return largest;
}

// A unit that is read, one that is written, and those between.
int32_t LeastBuffers(const SwapOptions& options, const ChunkPlan& chunks) {
  if (!chunks.overlap || chunks.num_rounds == 0) return 1;
  return options.in_place ? 2 : 3;
}
int32_t MostBuffers(const SwapOptions& options, const ChunkPlan& chunks) {
  const int32_t overlap = chunks.overlap && chunks.num_rounds > 0
                              ? LeastBuffers(options, chunks) + 1
                              : 1;
  return options.mode == SwapMode::kPipelined ? overlap + 2 : overlap;
}

void ChooseBuffers(const StateStore::Impl& store, const SwapOptions& options,
                   const ChunkPlan& chunks, SwapPlan& plan) {
  Need need = LargestNeed(store, chunks);
  need.bytes = std::max(need.bytes, kLeastUnitBytes);
  const auto least = static_cast<uint64_t>(LeastBuffers(options, chunks));
  const auto most = static_cast<uint64_t>(MostBuffers(options, chunks));
  const uint64_t limit = options.max_swap_bytes != 0
                             ? options.max_swap_bytes
                             : std::max(kDefaultSwapBytes, least * need.bytes);
  if (need.bytes * least > limit) {
    throw Error(
        ErrorCode::kResourceExhausted,
        "state does not fit into the staging buffers; raise "
        "ExecutorOptions::max_swap_bytes, or turn overlap off",
        {.tensor =
             need.parameter < 0
                 ? ""
                 : store.parameters[static_cast<size_t>(need.parameter)].name,
         .expected = StrCat("at most ", limit, " bytes"),
         .found = StrCat(need.bytes * least)});
  }
  plan.buffer_bytes = std::max(
      need.bytes, std::min({limit / most, kUnitBytes, LargestUse(store)}));
  plan.num_buffers = static_cast<int32_t>(std::clamp(
      limit / std::max<uint64_t>(1, plan.buffer_bytes), least, most));
}

bool IsAnyStaged(const StateStore::Impl& store) {
  const auto num_groups =
      static_cast<int32_t>(store.partitioning.groups().size());
  for (int32_t i = 0; i < num_groups; ++i) {
    for (const std::string_view kind : kStoreKinds) {
      if (store.segments->has(kind, i) &&
          !store.segments->addressable(kind, i)) {
        return true;
      }
    }
  }
  return false;
}

// Matrices that lie whole on this rank, as many as a buffer takes; all of them
// where none is needed.
std::vector<TaskUnit> PackInPlace(const StateStore::Impl& store,
                                  const ChunkPlan& chunks,
                                  uint64_t buffer_bytes) {
  const int32_t rank = store.communicator->rank();
  std::vector<TaskUnit> units;
  uint64_t bytes = 0;
  for (const size_t& index : chunks.in_place[static_cast<size_t>(rank)]) {
    // Apart, a unit's parts never take less than together.
    const uint64_t more =
        StagedBytes(store, kMuonKinds, UnitOf(chunks, {&index, 1}, rank));
    if (units.empty() || bytes + more > buffer_bytes) {
      units.emplace_back();
      bytes = 0;
    }
    units.back().tasks.push_back(index);
    bytes += more;
  }
  for (TaskUnit& unit : units) unit.unit = UnitOf(chunks, unit.tasks, rank);
  return units;
}

void AddSegments(const StateStore::Impl& store, SwapPlan& plan) {
  const auto append = [&](std::span<const StagedKind> kinds, int32_t group,
                          std::vector<Unit>& units) {
    for (Unit& unit : CutSegment(store, kinds, group, plan.buffer_bytes)) {
      units.push_back(std::move(unit));
    }
  };
  const auto num_groups =
      static_cast<int32_t>(store.partitioning.groups().size());
  for (int32_t i = 0; i < num_groups; ++i) {
    if (!store.segments->has(kGradient, i)) continue;
    append(kNormKinds, i, plan.norm_units);
    if (store.segments->has(kExpAvg, i)) append(kAdamKinds, i, plan.adam_units);
  }
}

}  // namespace

SwapPlan PlanSwap(const StateStore::Impl& store, const SwapOptions& options,
                  const ChunkPlanOptions& chunk_options, ChunkPlan& chunks) {
  SwapPlan plan;
  if (IsAnyStaged(store)) {
    const uint64_t limit = options.max_swap_bytes != 0 ? options.max_swap_bytes
                                                       : kDefaultSwapBytes;
    ChunkPlanOptions smaller = chunk_options;
    while (smaller.chunk_bytes > kMinChunkBytes &&
           LargestNeed(store, chunks).bytes *
                   static_cast<uint64_t>(MostBuffers(options, chunks)) >
               limit) {
      smaller.chunk_bytes /= 2;
      chunks = PlanChunks(std::move(chunks.tasks), store.parameters, smaller);
    }
    ChooseBuffers(store, options, chunks, plan);
  }
  const int32_t rank = store.communicator->rank();
  plan.in_place = PackInPlace(store, chunks, plan.buffer_bytes);
  for (size_t round = 0; round < chunks.num_rounds; ++round) {
    TaskUnit& unit = plan.rounds.emplace_back();
    unit.tasks = chunks.TasksOfRound(round);
    unit.unit = UnitOf(chunks, unit.tasks, rank);
  }
  AddSegments(store, plan);
  return plan;
}

}  // namespace muonstore
