// Orthogonalizes every matrix of a step, gather and scatter beside it.
//
// What: matrices that lie whole on this rank are done in place; the others go
//   through gather buffers round by round. While round k computes, round k + 1
//   is gathered and round k - 1 scattered. An accelerator computes
//   asynchronously: its results are scattered one round later.
// Ownership: refers to the plan, device, communicator and pool.
// Threads: one. Run is collective: exchanges start in the same order on every
//   rank, whatever the ranks' speeds.
// Failures: what exchanges and the device throw; everything under way has ended
//   when Run throws.

#ifndef MUONSTORE_SRC_EXECUTOR_MUON_PIPELINE_H_
#define MUONSTORE_SRC_EXECUTOR_MUON_PIPELINE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "muonstore/communicator.h"
#include "muonstore/device.h"
#include "src/executor/chunk_exchange.h"
#include "src/executor/chunk_plan.h"
#include "src/executor/gather_pool.h"

namespace muonstore {

// What one step gives the pipeline.
struct PipelineStep {
  // What to orthogonalize, and where the update goes.
  SegmentOf source;
  SegmentOf dest;
  // The update of these tasks has come to this rank's elements of them.
  std::function<void(std::span<const size_t> tasks)> done;
};

struct PipelineTimes {
  double exchange_s = 0;  // Waiting.
  double orthogonalize_s = 0;
};

class MuonPipeline {
 public:
  MuonPipeline(const ChunkPlan& plan, Device& device,
               Communicator& communicator, GatherPool& pool);
  ~MuonPipeline();

  PipelineTimes Run(const PipelineStep& step);

 private:
  // A round between the start of its gather and the end of its scatter.
  struct Round {
    size_t index = 0;
    const Chunk* chunk = nullptr;  // This rank's, or null.
    int32_t buffer = -1;
    std::unique_ptr<DeviceBuffer> device_buffer;
    PendingPtr exchange;
    std::vector<PendingPtr> computing;
  };

  void RunInPlace(const PipelineStep& step);
  void RunRounds(const PipelineStep& step);
  void StartGather(const PipelineStep& step, size_t round);
  void Compute(Round& round);
  void ComputeInBuffer(const Round& round);
  void ComputeOnDevice(Round& round);
  void StartScatter(const PipelineStep& step);
  void FinishScatter(const PipelineStep& step);
  std::vector<size_t> TasksOfRound(size_t round) const;
  std::span<std::byte> BufferOf(const Round& round) const;

  const ChunkPlan& plan_;
  Device& device_;
  Communicator& communicator_;
  GatherPool& pool_;
  PipelineTimes times_;
  // In this order a round passes through them.
  std::deque<Round> gathering_;
  std::deque<Round> computing_;
  std::deque<Round> scattering_;
  // Of rounds past, for the next ones.
  std::vector<std::unique_ptr<DeviceBuffer>> device_buffers_;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_MUON_PIPELINE_H_
